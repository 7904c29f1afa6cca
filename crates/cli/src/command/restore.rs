//! `tenon restore`: restores the names of a volume from a backup.

use crate::command::unmounted::UnmountedFlags;
use crate::control::holder::Holder;
use crate::metadata;
use crate::metadata::backup::{Origin, Reader};
use crate::process;
use crate::state;
use crate::state::StateDir;
use crate::state::registry::Registry;
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

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
    #[command(flatten)]
    access: UnmountedFlags,
}

impl Restore {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Ok(mount) = Registry::of_user().find(&self.volume) {
            bail!("{} is in use at {}; unmount it first", self.volume, mount.holder.mount_point.display());
        }
        let volume = Volume::parse(&self.volume)?;
        let root = self.access.state_root(&volume);
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
        process::runtime()?.block_on(self.check_volume_id(&volume, &origin))?;
        let state = StateDir::lock(&root, &Holder::for_command(volume.url()))?;
        let placed = restore_to(&self.file, &origin, &root);
        if placed.is_err() {
            state.abandon(metadata::exists_in(&root));
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
        let id = self.access.open(volume, true).await?.id()?;
        if id != origin.owner {
            bail!(
                "{} is a backup of {}, not of {} (id {}, not {id}); give the backup of this volume",
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
