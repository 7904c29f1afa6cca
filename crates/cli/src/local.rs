//! Buckets on this machine: object drives, or directories.

use crate::bucket::World;
use crate::drives::{Drives, Opening};
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use drive::{Drive, OpenOptions};
use std::sync::Arc;
use store::Buckets;
use store::dir::{DirBuckets, DirOptions};
use tokio::task::JoinHandle;

/// Buckets that are open.
#[derive(Debug)]
pub(crate) enum Local {
    /// Those of one drive or of several, and each drive with what keeps it up.
    Drives { buckets: Arc<dyn Buckets>, kept: Vec<(Drive, JoinHandle<()>)> },
    /// Directories.
    Directories(Arc<DirBuckets>),
}

impl Local {
    /// Opens what a volume names; how is a drive's affair, but for `read_only`.
    pub(crate) async fn open(volume: &Volume, opening: Opening, world: &World) -> Result<Self> {
        match volume {
            Volume::Drive { drives } => Self::of_drives(drives, opening, world).await,
            Volume::Directories { root } => {
                let options = DirOptions { read_only: opening.options.read_only, ..DirOptions::default() };
                let buckets = DirBuckets::open(root, options, world.clock.clone(), world.entropy.clone());
                let buckets = buckets.with_context(|| format!("cannot use {}", root.display()))?;
                Ok(Self::Directories(Arc::new(buckets)))
            }
            _ => bail!("{} is no place with buckets on this machine", volume.url()),
        }
    }

    /// Opens drives, and keeps them up.
    pub(crate) async fn of_drives(drives: &Drives, opening: Opening, world: &World) -> Result<Self> {
        let opened = drives.open(opening, world).await?;
        let buckets = opened.buckets(opening.degraded).await?;
        let keep = |drive: Drive| {
            let kept = drive.clone();
            let keep_up = move || {
                let drive = kept.clone();
                async move { drive.keep_up().await }
            };
            (drive, tokio::spawn(store::supervise("upkeep of a drive", keep_up)))
        };
        Ok(Self::Drives { buckets, kept: opened.all().into_iter().map(keep).collect() })
    }

    pub(crate) fn buckets(&self) -> Arc<dyn Buckets> {
        match self {
            Self::Drives { buckets, .. } => buckets.clone(),
            Self::Directories(buckets) => buckets.clone(),
        }
    }

    /// The drives, if it has any.
    pub(crate) fn drives(&self) -> impl Iterator<Item = &Drive> {
        let kept = match self {
            Self::Drives { kept, .. } => kept.as_slice(),
            Self::Directories(_) => &[],
        };
        kept.iter().map(|(drive, _)| drive)
    }

    /// Whether it has drives, which take memory of their own.
    pub(crate) fn has_drives(&self) -> bool {
        matches!(self, Self::Drives { .. })
    }

    /// Ends: what was acknowledged is safe in any case, and is found sooner by the next opening.
    pub(crate) async fn close(&self) -> Result<()> {
        let Self::Drives { kept, .. } = self else { return Ok(()) };
        let mut closed = Ok(());
        for (drive, keeper) in kept {
            keeper.abort();
            closed = closed.and(drive.close().await.context("the drive's last checkpoint"));
        }
        closed
    }
}

/// How a drive is opened that may take so much memory, in bytes: half of it for objects that were read, a quarter for the
/// index; the rest is for what is under way.
pub(crate) fn within(memory_bytes: u64, read_only: bool) -> OpenOptions {
    let index_bytes = usize::try_from(memory_bytes / 4).unwrap_or(usize::MAX);
    OpenOptions { index_bytes, read_cache_bytes: memory_bytes / 2, read_only, ..OpenOptions::default() }
}
