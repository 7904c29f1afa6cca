//! `tenon restore`: restores the names of a volume from a backup.

use crate::bucket::{self, Bucket, ProcessContext};
use crate::command::flags::StoreFlags;
use crate::command::status;
use crate::metadata;
use crate::metadata::backup::{Origin, Reader};
use crate::process::environment;
use crate::state;
use crate::state::{Holder, StateDir};
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::runtime::Runtime;
use vfs::VolumeRecord;

/// Restore the names of a volume from a backup, if this machine has none.
///
/// Nothing is changed before the whole file has been read and its checksums are verified. Afterwards, `tenon fsck`
/// reports what the bucket lost since the backup.
#[derive(Debug, Args)]
pub(crate) struct Restore {
    /// Backup file, written by `tenon backup`
    file: PathBuf,
    /// The volume
    volume: String,
    /// State directory to restore to, as given to `tenon mount`
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
        if metadata::exists_in(&root) {
            bail!(
                "{} already has names of {}, which a backup does not replace: move that directory away first",
                root.display(),
                volume.url()
            );
        }
        let origin = Reader::open(&self.file)?.origin;
        let records = Reader::open(&self.file)?.verify()?;
        Runtime::new().context("cannot start")?.block_on(self.check_volume_id(&volume, &origin))?;
        let state = StateDir::lock(&root, &Holder::for_command(volume.url()))?;
        let placed = restore_to(&self.file, &origin, &root);
        if placed.is_err() {
            state.abandon();
        }
        placed?;
        let url = volume.url();
        println!(
            "restored {records} records of {}, as of {}, to {}; `tenon fsck {url}` reports what the bucket lost since",
            url,
            origin.made_at,
            root.display()
        );
        Ok(ExitCode::SUCCESS)
    }

    /// Refuses a backup of another volume.
    async fn check_volume_id(&self, volume: &Volume, origin: &Origin) -> Result<()> {
        let bucket = Bucket::open(volume, &self.store, true, &ProcessContext::system()?).await?;
        let record = VolumeRecord::read(bucket.store.as_ref(), volume.prefix().as_bytes()).await?;
        let id = metadata::owner_id(volume, record.as_ref())?;
        if id != origin.owner {
            bail!(
                "{} is a backup of {}, not of {} (id {}, not {id})",
                self.file.display(),
                origin.volume,
                volume.url(),
                origin.owner
            );
        }
        Ok(())
    }
}

fn restore_to(file: &Path, origin: &Origin, root: &Path) -> Result<()> {
    state::check_no_backlog(root)?;
    state::check_no_moves(root)?;
    let mut reader = Reader::open(file)?;
    metadata::restore(root, origin, || reader.next())
        .with_context(|| format!("cannot restore to {}", root.display()))
}
