//! Buckets on this machine: an object drive, or directories.

use crate::bucket::World;
use crate::devices::Devices;
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
    /// A drive, and what keeps it up.
    Drive { drive: Drive, keeper: JoinHandle<()> },
    /// Directories.
    Directories(Arc<DirBuckets>),
}

impl Local {
    /// Opens what a volume names; the options are a drive's, but for `read_only`.
    pub(crate) async fn open(volume: &Volume, options: OpenOptions, world: &World) -> Result<Self> {
        match volume {
            Volume::Drive { devices } => Self::of_drive(devices, options, world).await,
            Volume::Directories { root } => {
                let options = DirOptions { read_only: options.read_only, ..DirOptions::default() };
                let buckets = DirBuckets::open(root, options, world.clock.clone(), world.entropy.clone());
                let buckets = buckets.with_context(|| format!("cannot use {}", root.display()))?;
                Ok(Self::Directories(Arc::new(buckets)))
            }
            _ => bail!("{} is no place with buckets on this machine", volume.url()),
        }
    }

    /// Opens a drive, and keeps it up.
    pub(crate) async fn of_drive(devices: &Devices, options: OpenOptions, world: &World) -> Result<Self> {
        let drive = devices.open(options, world).await?.drive;
        let kept = drive.clone();
        Ok(Self::Drive { drive, keeper: tokio::spawn(async move { kept.keep_up().await }) })
    }

    pub(crate) fn buckets(&self) -> Arc<dyn Buckets> {
        match self {
            Self::Drive { drive, .. } => Arc::new(drive.clone()),
            Self::Directories(buckets) => buckets.clone(),
        }
    }

    /// Ends: what was acknowledged is safe in any case, and is found sooner by the next opening.
    pub(crate) async fn close(&self) -> Result<()> {
        let Self::Drive { drive, keeper } = self else { return Ok(()) };
        keeper.abort();
        drive.close().await.context("the drive's last checkpoint")
    }
}

/// How a drive is opened that may take so much memory, in bytes: half of it for objects that were read, a quarter for the
/// index; the rest is for what is under way.
pub(crate) fn within(memory_bytes: u64, read_only: bool) -> OpenOptions {
    let index_bytes = usize::try_from(memory_bytes / 4).unwrap_or(usize::MAX);
    OpenOptions { index_bytes, read_cache_bytes: memory_bytes / 2, read_only }
}
