//! `tenon rebuild`: rebuilds the metadata of a volume named by path from its bucket.

use crate::bucket::{self, Bucket, ProcessContext};
use crate::command::flags::StoreFlags;
use crate::command::progress::Progress;
use crate::command::status;
use crate::metadata;
use crate::process::environment;
use crate::state;
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use vfs::{Filesystem, Naming, VolumeRecord};

const MEMORY_BYTES: u64 = 256 << 20;
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
    /// The state directory given to `tenon mount`
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    store: StoreFlags,
}

impl Rebuild {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Ok(mount) = status::find(&self.volume, environment::registry().mounts()) {
            bail!("{} is mounted at {}; unmount it first", self.volume, mount.holder.mount_point.display());
        }
        let volume = Volume::parse(&self.volume)?;
        let root = bucket::state_dir(&volume, self.state_dir.as_deref(), &self.store);
        let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
        if !metadata::exists_in(&root) {
            let (url, root) = (volume.url(), root.display());
            if runtime.block_on(self.is_by_inode(&volume))? {
                bail!(
                    "the names of {url} are not in {root}, and a bucket does not have them: {}",
                    restore_hint(&url)
                );
            }
            bail!("there is no metadata of {url} in {root}; `tenon mount` creates it");
        }
        let _lock = state::lock_for_command(&root)?;
        runtime.block_on(self.rebuild(&volume, &root))?;
        Ok(ExitCode::SUCCESS)
    }

    async fn is_by_inode(&self, volume: &Volume) -> Result<bool> {
        let bucket = Bucket::open(volume, &self.store, true, &ProcessContext::system()?).await?;
        let record = VolumeRecord::read(bucket.store.as_ref(), volume.prefix().as_bytes()).await?;
        Ok(record.is_some_and(|record| record.naming == Naming::Inode))
    }

    async fn rebuild(&self, volume: &Volume, root: &Path) -> Result<()> {
        let context = ProcessContext::system()?;
        let bucket = Bucket::open(volume, &self.store, true, &context).await?;
        let record = VolumeRecord::read(bucket.store.as_ref(), volume.prefix().as_bytes()).await?;
        if record.as_ref().is_some_and(|record| record.naming == Naming::Inode) {
            bail!(
                "the names of {} are only in its metadata: move {} away, and {}",
                volume.url(),
                root.display(),
                restore_hint(&volume.url())
            );
        }
        if !self.force && self.is_sound(volume, root, &bucket, record.as_ref()).await {
            bail!("the metadata in {} is sound; --force rebuilds it all the same", root.display());
        }
        let kept = metadata::move_engine_away(root)?;
        let store = bucket.store.as_ref();
        let metadata = metadata::open(volume, record.as_ref(), store, root, None, MEMORY_BYTES).await?;
        let mut config = vfs::Config::new(root.join("cache"));
        config.moves_path = state::moves_path(root);
        config.prefix = volume.prefix().as_bytes().to_vec();
        config.uid = rustix::process::getuid().as_raw();
        config.gid = rustix::process::getgid().as_raw();
        metadata::record_settings(root, &config)?;
        let parts = vfs::Parts {
            store: Arc::clone(&bucket.store),
            clock: context.clock,
            entropy: context.entropy,
            engine: metadata.engine.clone(),
            record,
        };
        let fs = Filesystem::mount(parts, config)?;
        let count = learn_names(&fs).await?;
        fs.sync_names().await?;
        println!("rebuilt {count} names of {}", volume.url());
        println!("the old metadata is kept in {}", kept.display());
        Ok(())
    }

    async fn is_sound(
        &self,
        volume: &Volume,
        root: &Path,
        bucket: &Bucket,
        record: Option<&VolumeRecord>,
    ) -> bool {
        let opened = metadata::open(volume, record, bucket.store.as_ref(), root, None, MEMORY_BYTES).await;
        opened.is_ok_and(|metadata| {
            meta::invariants::fsck(metadata.engine.as_ref()).is_ok_and(|violations| violations.is_empty())
        })
    }
}

/// Says how to restore names that no bucket has.
fn restore_hint(url: &str) -> String {
    format!("restore a backup with `tenon restore FILE {url}`")
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
    Ok(fs.learn_all(show_count).await?)
}
