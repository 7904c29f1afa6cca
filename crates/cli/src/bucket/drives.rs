//! Opens the drives that a volume names: one drive, or the drives of a pool.

use crate::bucket::devices::{self, OpenDrive};
use crate::process::context::ProcessContext;
use crate::volume::device_names::{Devices, Drives};
use anyhow::{Context, Result, bail};
use drive::pool::{Pool, PoolOptions};
use drive::{Drive, OpenOptions};
use std::sync::Arc;
use store::Buckets;

/// Options for opening drives together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DrivesOptions {
    /// Options of each drive, but for the memory limits, which the drives share.
    pub(crate) options: OpenOptions,
    /// Whether to open a pool although some of its drives are missing.
    pub(crate) degraded: bool,
}

/// Open drives.
pub(crate) struct OpenDrives {
    /// Each drive, with its devices.
    pub(crate) drives: Vec<(Devices, OpenDrive)>,
    /// Errors of the drives that could not be opened.
    pub(crate) missing: Vec<String>,
}

impl OpenDrives {
    /// Opens each drive. With `degraded`, a drive that cannot be opened is missing, unless another process has it open.
    pub(crate) async fn open(
        drives: &Drives,
        opening: DrivesOptions,
        context: &ProcessContext,
    ) -> Result<Self> {
        let options = options_of_each(opening.options, drives.each().count());
        let mut opened = Self { drives: Vec::new(), missing: Vec::new() };
        for devices in drives.each() {
            match devices::open(devices, options, context).await {
                Ok(drive) => opened.drives.push((devices.clone(), drive)),
                Err(error) if opening.degraded && !devices::is_in_use(&error) => {
                    tracing::warn!("a drive of the pool cannot be opened and counts as missing: {error:#}");
                    opened.missing.push(format!("{error:#}"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(opened)
    }

    /// Returns all open drives.
    pub(crate) fn all(&self) -> Vec<Drive> {
        self.drives.iter().map(|(_, open)| open.drive.clone()).collect()
    }

    /// Returns the buckets of the only drive, or of the pool that the drives form.
    pub(crate) async fn buckets(&self, degraded: bool) -> Result<Arc<dyn Buckets>> {
        if let ([(_, only)], []) = (self.drives.as_slice(), self.missing.as_slice())
            && only.drive.membership().await?.is_none()
        {
            return Ok(Arc::new(only.drive.clone()));
        }
        self.check_not_empty()?;
        let pool = Pool::open(self.all(), PoolOptions { degraded }).await;
        let advice = "cannot use the pool: name all of its drives, or open it without the missing ones with --degraded";
        Ok(Arc::new(pool.context(advice)?))
    }

    /// Returns the buckets to export: those of all drives together or, with `degraded`, of each drive for itself, as a pool without some of
    /// its drives cannot be listed.
    pub(crate) async fn buckets_to_export(&self, degraded: bool) -> Result<Vec<Arc<dyn Buckets>>> {
        if !degraded {
            return Ok(vec![self.buckets(degraded).await?]);
        }
        self.check_not_empty()?;
        Ok(self.all().into_iter().map(|drive| Arc::new(drive) as Arc<dyn Buckets>).collect())
    }

    /// Fails if no drive of the pool can be opened.
    fn check_not_empty(&self) -> Result<()> {
        if self.drives.is_empty() {
            bail!("no drive of the pool can be opened: {}", self.missing.join("; "));
        }
        Ok(())
    }
}

/// Returns the options of each of this number of drives, which share the memory limits.
fn options_of_each(options: OpenOptions, drives: usize) -> OpenOptions {
    let read_cache_bytes = options.read_cache_bytes / drives as u64;
    OpenOptions { index_bytes: options.index_bytes / drives, read_cache_bytes, ..options }
}
