//! Cached documents of buckets.

use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::ObjectKey;
use tokio::time::Instant;

/// How long a cached document is valid, since another endpoint may change it.
pub(super) const CACHE_LIFETIME: Duration = Duration::from_secs(10);

/// Documents read or written, by key, and when.
#[derive(Debug, Default)]
pub(crate) struct SettingsCache(Mutex<HashMap<ObjectKey, CachedDocument>>);

#[derive(Debug, Clone)]
pub(super) struct CachedDocument {
    /// The document; `None`: there is none.
    pub(super) text: Option<Bytes>,
    pub(super) at: Instant,
}

impl SettingsCache {
    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, CachedDocument>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<CachedDocument> {
        self.lock().get(key).cloned()
    }

    pub(super) fn insert(&self, key: ObjectKey, text: Option<Bytes>) {
        self.lock().insert(key, CachedDocument { text, at: Instant::now() });
    }

    pub(super) fn remove(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }
}
