//! The drives that a volume names: one, or those of a pool.

use crate::bucket::World;
use crate::devices::{Devices, OpenDrive, separated};
use anyhow::{Context, Result, bail};
use drive::device::OpenError;
use drive::pool::{Pool, PoolOptions};
use drive::{Drive, OpenOptions};
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use store::Buckets;

/// The drives of a place with buckets, whose order says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Drives(Vec<Devices>);

/// How drives are opened together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Opening {
    /// Each of them; what memory they may take they share.
    pub(crate) options: OpenOptions,
    /// Also if some of a pool are missing.
    pub(crate) degraded: bool,
}

/// Drives that are open.
pub(crate) struct OpenDrives {
    /// Each, and its devices.
    pub(crate) drives: Vec<(Devices, OpenDrive)>,
    /// Why others are not.
    pub(crate) missing: Vec<String>,
}

impl Drives {
    /// Reads drives with a plus between them, each as [`Devices::parse`] does. A plus in a name is a plus as long as no slash
    /// follows.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        Self::each_of(separated(text, "+/"))
    }

    /// These drives, each as [`Devices::parse`] reads it.
    pub(crate) fn each_of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let drives = texts.into_iter().map(Devices::parse);
        let mut drives: Vec<Devices> = drives.collect::<Result<_>>()?;
        drives.sort_by_key(Devices::to_string);
        let mut named = BTreeSet::new();
        if let Some(twice) = drives.iter().flat_map(Devices::paths).find(|path| !named.insert(*path)) {
            bail!("{} is named twice", twice.display());
        }
        Ok(Self(drives))
    }

    /// Each drive.
    pub(crate) fn each(&self) -> impl Iterator<Item = &Devices> {
        self.0.iter()
    }

    /// All devices of all drives.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().flat_map(Devices::paths)
    }

    /// Opens each; one that cannot be, and that nobody else has open, is missing if that may be.
    pub(crate) async fn open(&self, opening: Opening, world: &World) -> Result<OpenDrives> {
        let options = shared(opening.options, self.0.len());
        let mut opened = OpenDrives { drives: Vec::new(), missing: Vec::new() };
        for devices in &self.0 {
            match devices.open(options, world).await {
                Ok(drive) => opened.drives.push((devices.clone(), drive)),
                Err(error) if opening.degraded && !is_held(&error) => {
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
    /// Each of them.
    pub(crate) fn all(&self) -> Vec<Drive> {
        self.drives.iter().map(|(_, open)| open.drive.clone()).collect()
    }

    /// The buckets of one drive, or those of the pool that these are.
    pub(crate) async fn buckets(&self, degraded: bool) -> Result<Arc<dyn Buckets>> {
        if let ([(_, only)], []) = (self.drives.as_slice(), self.missing.as_slice())
            && only.drive.membership().await?.is_none()
        {
            return Ok(Arc::new(only.drive.clone()));
        }
        self.any()?;
        let pool = Pool::open(self.all(), PoolOptions { degraded }).await;
        let advice = "cannot use the pool: name all of its drives, or have what there is with --degraded";
        Ok(Arc::new(pool.context(advice)?))
    }

    /// The same to be copied. What there is on some of a pool's drives is read drive by drive: the pool would not list it.
    pub(crate) async fn exported(&self, degraded: bool) -> Result<Vec<Arc<dyn Buckets>>> {
        if !degraded {
            return Ok(vec![self.buckets(degraded).await?]);
        }
        self.any()?;
        Ok(self.all().into_iter().map(|drive| Arc::new(drive) as Arc<dyn Buckets>).collect())
    }

    fn any(&self) -> Result<()> {
        if self.drives.is_empty() {
            bail!("no drive of the pool is there: {}", self.missing.join("; "));
        }
        Ok(())
    }
}

pub(crate) fn is_held(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref(), Some(OpenError::Held(_))))
}

/// What each of so many drives may take.
fn shared(options: OpenOptions, drives: usize) -> OpenOptions {
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
    fn drives_are_told_apart_by_pluses_before_slashes() {
        let shown = |text: &str| Drives::parse(text).unwrap().to_string();
        assert_eq!(shown("drive:///no/c+/no/b,/no/a"), "/no/a,/no/b+/no/c");
        assert_eq!(shown("/no/a+b"), "/no/a+b");
        assert!(Drives::parse("/no/a+/no/b,/no/a").unwrap_err().to_string().contains("twice"));
        assert!(Drives::parse("+/no/a").is_err());
    }
}
