//! Buckets on this machine: object drives, or directories.

use crate::bucket::drives::{DrivesOptions, OpenDrives};
use crate::process::context::ProcessContext;
use crate::volume::Volume;
use crate::volume::device_names::Drives;
use anyhow::{Context, Result, bail};
use drive::{Drive, OpenOptions};
use std::sync::Arc;
use store::Buckets;
use store_dir::{DirBuckets, DirOptions};
use tokio::task::JoinHandle;

/// Open buckets on this machine.
#[derive(Debug)]
pub(crate) enum LocalBuckets {
    /// The buckets of one or several drives, and each drive with its upkeep task.
    Drives { buckets: Arc<dyn Buckets>, upkeep: Vec<(Drive, JoinHandle<()>)> },
    /// A directory of buckets.
    Directories(Arc<DirBuckets>),
}

impl LocalBuckets {
    /// Opens what a volume names. Directories use only `read_only` of the options.
    pub(crate) async fn open(
        volume: &Volume,
        options: DrivesOptions,
        context: &ProcessContext,
    ) -> Result<Self> {
        match volume {
            Volume::Drive { drives } => Self::of_drives(drives, options, context).await,
            Volume::Directories { root } => {
                let options = DirOptions { read_only: options.options.read_only, ..DirOptions::default() };
                let buckets = DirBuckets::open(root, options, context.clock.clone(), context.entropy.clone());
                let buckets = buckets
                    .with_context(|| format!("cannot use {} as a directory of buckets", root.display()))?;
                Ok(Self::Directories(Arc::new(buckets)))
            }
            _ => bail!("{} is neither a drive nor a directory of buckets on this machine", volume.url()),
        }
    }

    /// Opens drives, and starts their background upkeep.
    pub(crate) async fn of_drives(
        drives: &Drives,
        options: DrivesOptions,
        context: &ProcessContext,
    ) -> Result<Self> {
        let opened = OpenDrives::open(drives, options, context).await?;
        let buckets = opened.buckets(options.degraded).await?;
        let start_upkeep = |drive: Drive| {
            let owned = drive.clone();
            let maintenance = move || {
                let drive = owned.clone();
                async move { drive.run_maintenance().await }
            };
            (drive, tokio::spawn(store::supervise("upkeep of a drive", maintenance)))
        };
        Ok(Self::Drives { buckets, upkeep: opened.all().into_iter().map(start_upkeep).collect() })
    }

    /// Returns all buckets of the drives or directories.
    pub(crate) fn buckets(&self) -> Arc<dyn Buckets> {
        match self {
            Self::Drives { buckets, .. } => buckets.clone(),
            Self::Directories(buckets) => buckets.clone(),
        }
    }

    /// Returns the drives, if there are any.
    pub(crate) fn drives(&self) -> impl Iterator<Item = &Drive> {
        let upkeep = match self {
            Self::Drives { upkeep, .. } => upkeep.as_slice(),
            Self::Directories(_) => &[],
        };
        upkeep.iter().map(|(drive, _)| drive)
    }

    /// Returns whether there are drives, which use memory of their own.
    pub(crate) fn has_drives(&self) -> bool {
        matches!(self, Self::Drives { .. })
    }

    /// Closes the drives. Acknowledged writes are safe in any case, but the next opening is faster after this.
    pub(crate) async fn close(&self) -> Result<()> {
        let Self::Drives { upkeep, .. } = self else { return Ok(()) };
        let mut closed = Ok(());
        for (drive, task) in upkeep {
            task.abort();
            let closing = drive.close().await;
            let advice = "cannot write the drive's last checkpoint; acknowledged writes are safe";
            closed = closed.and(closing.context(advice));
        }
        closed
    }
}

/// Returns the options of a drive that may use this much memory, in bytes: half of it for the read cache, a quarter
/// for the index; the rest is for requests in progress.
pub(crate) fn options_within(memory_bytes: u64, read_only: bool) -> OpenOptions {
    let index_bytes = usize::try_from(memory_bytes / 4).unwrap_or(usize::MAX);
    OpenOptions { index_bytes, read_cache_bytes: memory_bytes / 2, read_only, ..OpenOptions::default() }
}
