//! Named buckets in memory.

use super::{MemoryLimits, MemoryStore};
use crate::{Buckets, Clock, ObjectStore, Result, StoreError, bucket_name};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A set of [`MemoryStore`]s, empty at the beginning.
#[derive(Debug)]
pub struct MemoryBuckets {
    buckets: Mutex<BTreeMap<String, MemoryStore>>,
    clock: Arc<dyn Clock>,
    limits: MemoryLimits,
}

impl MemoryBuckets {
    /// Makes an empty set, whose buckets will have the limits of S3.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_limits(clock, MemoryLimits::default())
    }

    /// Makes an empty set, whose buckets will have these limits.
    pub fn with_limits(clock: Arc<dyn Clock>, limits: MemoryLimits) -> Self {
        Self { buckets: Mutex::default(), clock, limits }
    }

    fn buckets(&self) -> MutexGuard<'_, BTreeMap<String, MemoryStore>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait::async_trait]
impl Buckets for MemoryBuckets {
    async fn open(&self, name: &str) -> Result<Arc<dyn ObjectStore>> {
        let store = self.buckets().get(name).cloned();
        Ok(Arc::new(store.ok_or_else(|| StoreError::NoSuchBucket(name.to_owned()))?))
    }

    async fn create(&self, name: &str) -> Result<()> {
        bucket_name::check(name)?;
        match self.buckets().entry(name.to_owned()) {
            Entry::Occupied(_) => Err(bucket_name::exists(name)),
            Entry::Vacant(free) => {
                free.insert(MemoryStore::with_limits(self.clock.clone(), self.limits));
                Ok(())
            }
        }
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let mut buckets = self.buckets();
        let store = buckets.get(name).ok_or_else(|| StoreError::NoSuchBucket(name.to_owned()))?;
        if !store.is_empty() {
            return Err(bucket_name::not_empty(name));
        }
        buckets.remove(name);
        Ok(())
    }

    async fn list(&self) -> Result<Vec<String>> {
        Ok(self.buckets().keys().cloned().collect())
    }
}
