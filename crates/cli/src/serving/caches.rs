//! The caches of a mount below its memory: on the local disk, and in a bucket that machines share.

use crate::bucket::credentials::StoreSettings;
use crate::process::context::ProcessContext;
use crate::volume::Volume;
use anyhow::{Context, Result, bail};
use cache::{DiskCache, SharedCache};
use std::path::PathBuf;
use std::sync::Arc;
use store_s3::S3Buckets;

/// Minimum size of the disk cache, which has 16 directories with segments of 1 MiB.
pub(crate) const SIZE_BYTES_MIN: u64 = 256 << 20;

/// Settings of the caches.
#[derive(Debug, Clone)]
pub(crate) struct CacheSettings {
    /// Directory of the disk cache.
    pub(crate) dir: PathBuf,
    /// Limit of its size, in bytes.
    pub(crate) limit_bytes: u64,
    /// The shared cache, if there is one.
    pub(crate) shared: Option<SharedCacheSettings>,
}

/// Settings of a cache that machines share.
#[derive(Debug, Clone)]
pub(crate) struct SharedCacheSettings {
    /// The bucket, and the prefix of the keys in it.
    pub(crate) place: Volume,
    /// Profile in the AWS files with the server and the credentials; `None` for those of the volume.
    pub(crate) profile: Option<String>,
}

impl CacheSettings {
    /// Opens the disk cache of a volume. The bucket must be on a server.
    pub(crate) fn open_disk(
        &self,
        volume: &Volume,
        store: &StoreSettings,
        context: &ProcessContext,
    ) -> Result<DiskCache> {
        let bucket = match volume {
            Volume::S3 { bucket, .. } => bucket.clone(),
            Volume::Buckets { .. } => volume.url(),
            _ => bail!(
                "--cache-dir has no use: the objects of {} are on a disk of this machine; leave it out",
                volume.url()
            ),
        };
        let source = format!("{} {bucket}", store.endpoint().unwrap_or_default());
        DiskCache::open(&self.dir, self.limit_bytes, &source, Arc::clone(&context.clock))
            .with_context(|| format!("cannot use the cache directory {}", self.dir.display()))
    }

    /// Returns the shared cache. Sends no request: a mount works without it.
    pub(crate) fn open_shared(
        &self,
        store: &StoreSettings,
        context: &ProcessContext,
    ) -> Result<Option<SharedCache>> {
        let Some(SharedCacheSettings { place, profile }) = &self.shared else { return Ok(None) };
        let Volume::S3 { bucket, prefix } = place else {
            bail!("the shared cache must be a bucket of a server; write s3://bucket or s3://bucket/prefix");
        };
        let (clock, entropy) = (Arc::clone(&context.clock), Arc::clone(&context.entropy));
        let buckets = S3Buckets::new(store.s3_config(profile.as_deref())?, clock, entropy)?;
        Ok(Some(SharedCache::new(Arc::new(buckets.store(bucket)?), prefix.as_bytes())))
    }
}
