//! Buckets on this machine: an object drive, or directories.

use crate::bucket::World;
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use drive::device::{FileDevice, Io};
use drive::{Drive, OpenOptions};
use std::path::Path;
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
    /// Opens what a volume names.
    pub(crate) async fn open(volume: &Volume, read_only: bool, world: &World) -> Result<Self> {
        match volume {
            Volume::Drive { device } => {
                let drive = open_drive(device, read_only, world).await?;
                let kept = drive.clone();
                Ok(Self::Drive { drive, keeper: tokio::spawn(async move { kept.keep_up().await }) })
            }
            Volume::Directories { root } => {
                let options = DirOptions { read_only, ..DirOptions::default() };
                let buckets = DirBuckets::open(root, options, world.clock.clone(), world.entropy.clone());
                let buckets = buckets.with_context(|| format!("cannot use {}", root.display()))?;
                Ok(Self::Directories(Arc::new(buckets)))
            }
            _ => bail!("{} is no place with buckets on this machine", volume.url()),
        }
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

/// The drive on a device, without anybody who keeps it up.
pub(crate) async fn open_drive(device: &Path, read_only: bool, world: &World) -> Result<Drive> {
    let (path, clock) = (device.to_owned(), world.clock.clone());
    let opened = tokio::task::spawn_blocking(move || {
        let device = match read_only {
            true => FileDevice::open_read_only(&path)?,
            false => FileDevice::open(&path)?,
        };
        let options = OpenOptions { read_only, ..OpenOptions::default() };
        anyhow::Ok(Drive::open(Io::open(device), options, clock)?)
    });
    opened.await?.with_context(|| format!("cannot use the drive {}", device.display()))
}
