//! `tenon restore`: the names of a volume from a backup.

use crate::backup::{About, Reader};
use crate::bucket::{self, Bucket, World};
use crate::command::status;
use crate::flags::StoreFlags;
use crate::state::{Holder, State};
use crate::volume::Volume;
use crate::{environment, metadata, state};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::runtime::Runtime;
use vfs::VolumeRecord;

/// Make the names of a volume from a backup, where this machine has none.
///
/// Nothing is placed before all of the file has been read and its checksums are right. What the bucket lost since the backup was
/// made, `tenon fsck` says afterwards.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// A file that `tenon backup` wrote
    file: PathBuf,
    /// The volume
    volume: String,
    /// The state directory for `tenon mount`
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    store: StoreFlags,
}

impl Restore {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Ok(mount) = status::find(&self.volume, environment::registry().mounts()) {
            bail!("{} is in use at {}; unmount it first", self.volume, mount.holder.mount_point.display());
        }
        let volume = Volume::parse(&self.volume)?;
        let root = bucket::state_dir(&volume, self.state_dir.as_deref(), &self.store);
        let root =
            std::path::absolute(&root).with_context(|| format!("cannot resolve {}", root.display()))?;
        if metadata::is_in(&root) {
            bail!(
                "{} has names of {} already, which a backup does not replace: move that directory away first",
                root.display(),
                volume.url()
            );
        }
        let about = Reader::open(&self.file)?.about;
        let records = Reader::open(&self.file)?.verify()?;
        Runtime::new().context("cannot start")?.block_on(self.fits(&volume, &about))?;
        let state = State::take(&root, &Holder::alone(volume.url()))?;
        let placed = place(&self.file, &about, &root);
        if placed.is_err() {
            state.abandon();
        }
        placed?;
        let url = volume.url();
        println!(
            "{records} records of {}, as they were at {}, are in {}; `tenon fsck {url}` says what the bucket lost since",
            url,
            about.made_at,
            root.display()
        );
        Ok(ExitCode::SUCCESS)
    }

    /// Refuses a backup of another volume.
    async fn fits(&self, volume: &Volume, about: &About) -> Result<()> {
        let bucket = Bucket::open(volume, &self.store, true, &World::real()?).await?;
        let record = VolumeRecord::read(bucket.store.as_ref(), volume.prefix().as_bytes()).await?;
        let id = metadata::owner_id(volume, record.as_ref())?;
        if id != about.owner {
            bail!(
                "{} is a backup of {}, which is another volume than {} (id {}, not {id})",
                self.file.display(),
                about.volume,
                volume.url(),
                about.owner
            );
        }
        Ok(())
    }
}

fn place(file: &Path, about: &About, root: &Path) -> Result<()> {
    state::nothing_waits(root)?;
    state::nothing_moves(root)?;
    let mut reader = Reader::open(file)?;
    metadata::restore(root, about, || reader.next())
        .with_context(|| format!("cannot restore to {}", root.display()))
}
