//! The drives that a volume names: one drive, or the drives of a pool.

use crate::bucket::ProcessContext;
use crate::bucket::devices::{Devices, OpenDrive, split_paths};
use anyhow::{Context, Result, bail};
use drive::device::OpenError;
use drive::pool::{Pool, PoolOptions};
use drive::{Drive, OpenOptions};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use store::Buckets;

/// Drives that hold buckets together, in any order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Drives(Vec<Devices>);

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

impl Drives {
    /// Parses drives with a plus between them, each as [`Devices::parse`] does. A plus without a slash after it is
    /// part of a name.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        Self::parse_each(split_paths(text, "+/"))
    }

    /// Parses each of the texts as [`Devices::parse`] does.
    pub(crate) fn parse_each<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let drives = texts.into_iter().map(Devices::parse);
        let mut drives: Vec<Devices> = drives.collect::<Result<_>>()?;
        drives.sort_by_key(Devices::to_string);
        let mut named = BTreeSet::new();
        if let Some(twice) = drives.iter().flat_map(Devices::paths).find(|path| !named.insert(*path)) {
            bail!("{} is named twice", twice.display());
        }
        Ok(Self(drives))
    }

    /// Returns the devices of each drive.
    pub(crate) fn each(&self) -> impl Iterator<Item = &Devices> {
        self.0.iter()
    }

    /// Returns all devices of all drives.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().flat_map(Devices::paths)
    }

    /// Opens each drive. With `degraded`, a drive that cannot be opened is missing, unless another process has it
    /// open.
    pub(crate) async fn open(&self, opening: DrivesOptions, context: &ProcessContext) -> Result<OpenDrives> {
        let options = options_of_each(opening.options, self.0.len());
        let mut opened = OpenDrives { drives: Vec::new(), missing: Vec::new() };
        for devices in &self.0 {
            match devices.open(options, context).await {
                Ok(drive) => opened.drives.push((devices.clone(), drive)),
                Err(error) if opening.degraded && !is_in_use(&error) => {
                    tracing::warn!("a drive of the pool is missing: {error:#}");
                    opened.missing.push(format!("{error:#}"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(opened)
    }
}

impl OpenDrives {
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

    /// Returns the buckets to export. A degraded pool is read drive by drive, as such a pool cannot be listed.
    pub(crate) async fn buckets_to_export(&self, degraded: bool) -> Result<Vec<Arc<dyn Buckets>>> {
        if !degraded {
            return Ok(vec![self.buckets(degraded).await?]);
        }
        self.check_not_empty()?;
        Ok(self.all().into_iter().map(|drive| Arc::new(drive) as Arc<dyn Buckets>).collect())
    }

    fn check_not_empty(&self) -> Result<()> {
        if self.drives.is_empty() {
            bail!("no drive of the pool can be opened: {}", self.missing.join("; "));
        }
        Ok(())
    }
}

pub(crate) fn is_in_use(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(OpenError::Held(_))))
}

/// Returns the options of each drive, which share the memory limits.
fn options_of_each(options: OpenOptions, drives: usize) -> OpenOptions {
    let read_cache_bytes = options.read_cache_bytes / drives as u64;
    OpenOptions { index_bytes: options.index_bytes / drives, read_cache_bytes, ..options }
}

impl From<Devices> for Drives {
    fn from(devices: Devices) -> Self {
        Self(vec![devices])
    }
}

impl fmt::Display for Drives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<String> = self.0.iter().map(Devices::to_string).collect();
        f.write_str(&shown.join("+"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_separated_by_pluses_before_slashes() {
        let shown = |text: &str| Drives::parse(text).unwrap().to_string();
        assert_eq!(shown("drive:///no/c+/no/b,/no/a"), "/no/a,/no/b+/no/c");
        assert_eq!(shown("/no/a+b"), "/no/a+b");
        assert!(Drives::parse("/no/a+/no/b,/no/a").unwrap_err().to_string().contains("twice"));
        assert!(Drives::parse("+/no/a").is_err());
    }
}
