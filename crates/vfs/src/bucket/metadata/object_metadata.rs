//! The known metadata of objects, and the metadata that waits to be stored with them.

use std::sync::Arc;

use crate::base::Base;
use crate::bucket::metadata::{MetadataCache, PendingLock, Renamed};
use crate::mount::Mount;
use crate::names::Names;

/// The metadata and tags of objects: cached, and waiting to be stored.
#[derive(Debug)]
pub(crate) struct Metadata {
    pub(in crate::bucket) mount: Arc<Mount>,
    pub(in crate::bucket) names: Arc<Names>,
    pub(in crate::bucket) cache: MetadataCache,
    pub(in crate::bucket) pending_lock: PendingLock,
    pub(in crate::bucket) renamed: Renamed,
}

impl Metadata {
    pub(crate) fn new(base: &Base) -> Arc<Self> {
        Arc::new(Self {
            mount: base.mount.clone(),
            names: base.names.clone(),
            cache: MetadataCache::default(),
            pending_lock: PendingLock::default(),
            renamed: Renamed::default(),
        })
    }

    /// Returns the cache.
    pub(crate) fn cache(&self) -> &MetadataCache {
        &self.cache
    }

    /// Returns the files whose type may have changed because they were renamed since their headers were stored.
    pub(crate) fn renamed(&self) -> &Renamed {
        &self.renamed
    }
}
