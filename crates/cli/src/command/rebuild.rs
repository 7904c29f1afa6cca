//! `tenon rebuild`: rebuilds the metadata of a volume named by path from its bucket.

use crate::command::output::Progress;
use crate::command::unmounted::{UnmountedFlags, UnmountedVolume};
use crate::metadata;
use crate::process;
use crate::state;
use crate::state::registry::Registry;
use crate::volume::Volume;
use anyhow::{Result, bail};
use clap::Args;
use std::path::Path;
use std::process::ExitCode;
use vfs::Filesystem;

/// Names between two updates of the progress.
const NAMES_PER_UPDATE: usize = 1000;

/// Rebuild the metadata of a volume named by path from its bucket.
///
/// For metadata on this machine that is damaged. Everything that the bucket shows is restored. What it does not show
/// is lost: additional names of files with hard links, extended attributes, and paths longer than a key, whose
/// content stays under `.tenon/inodes/`. The damaged metadata is kept next to the new.
#[derive(Debug, Args)]
pub(crate) struct Rebuild {
    /// The volume
    volume: String,
    /// Rebuild even if the metadata is sound
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    access: UnmountedFlags,
}

impl Rebuild {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Ok(mount) = Registry::of_user().find(&self.volume) {
            bail!("{} is in use: {}", self.volume, mount.holder.describe_use());
        }
        let volume = Volume::parse(&self.volume)?;
        let root = self.access.state_root(&volume);
        let runtime = process::runtime()?;
        if !metadata::exists_in(&root) {
            let (url, root) = (volume.url(), root.display());
            let opened = runtime.block_on(self.access.open(&volume, true))?;
            opened.require_no_database()?;
            if opened.is_by_inode() {
                bail!(
                    "the names of {url} are not in {root}, and its objects do not have them: {}",
                    restore_hint(&url)
                );
            }
            bail!("there is no metadata of {url} in {root}; `tenon mount` creates it");
        }
        let _lock = state::lock_for_command(&root, &volume)?;
        runtime.block_on(self.rebuild(&volume, &root))?;
        Ok(ExitCode::SUCCESS)
    }

    async fn rebuild(&self, volume: &Volume, root: &Path) -> Result<()> {
        let opened = self.access.open(volume, true).await?;
        if opened.is_by_inode() {
            bail!(
                "the names of {} are only in its metadata: move {} away, and {}",
                volume.url(),
                root.display(),
                restore_hint(&volume.url())
            );
        }
        opened.require_no_database()?;
        if !self.force && is_sound(&opened).await {
            bail!("the metadata in {} is sound; --force rebuilds it all the same", root.display());
        }
        let kept = metadata::move_engine_away(root)?;
        let metadata = opened.open_metadata().await?;
        let config =
            vfs::Config { moves_path: state::moves_path(root), ..opened.config(state::cache_dir(root)) };
        metadata::record_settings(root, &config)?;
        let fs = opened.open_filesystem(&metadata, config)?;
        let count = learn_names(&fs).await?;
        fs.sync_names().await?;
        println!("rebuilt {count} names of {}", volume.url());
        println!("the old metadata is kept in {}", kept.display());
        Ok(())
    }
}

/// Returns whether the metadata can be opened, and has no broken invariant.
async fn is_sound(opened: &UnmountedVolume) -> bool {
    opened.open_metadata().await.is_ok_and(|metadata| {
        meta::invariants::fsck(&*metadata.engine()).is_ok_and(|violations| violations.is_empty())
    })
}

/// Says how to restore names that the keys of the objects do not have.
fn restore_hint(url: &str) -> String {
    format!("restore their backup with `tenon restore {url}`")
}

async fn learn_names(fs: &Filesystem) -> Result<usize> {
    let progress = Progress::start();
    let mut next = NAMES_PER_UPDATE;
    let show_count = |count: usize| {
        if count >= next {
            progress.show(&format!("{count} names"));
            next = count + NAMES_PER_UPDATE;
        }
    };
    Ok(fs.admin().learn_all(show_count).await?)
}
