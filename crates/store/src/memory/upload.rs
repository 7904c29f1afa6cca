//! Multipart upload of one caller, in memory: implements `Multipart`.

use super::{Description, Shared, slice};
use crate::part_number;
use crate::{Multipart, ObjectKey, ObjectRef, Payload, Precondition, Result, StoreError, byte_range};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A multipart upload whose id only its caller has: [`ObjectStore::multipart`](crate::ObjectStore::multipart).
pub(super) struct MemoryUpload {
    store: Arc<Shared>,
    key: ObjectKey,
    description: Option<Arc<Description>>,
    /// `None` once the upload was completed or aborted.
    parts: Mutex<Option<BTreeMap<u32, Payload>>>,
    /// The result of the completion, for a caller that repeats the call because it did not get the result.
    completed: OnceLock<ObjectRef>,
}

impl MemoryUpload {
    pub(super) fn new(store: Arc<Shared>, key: ObjectKey, description: Option<Arc<Description>>) -> Self {
        Self { store, key, description, parts: Mutex::new(Some(BTreeMap::new())), completed: OnceLock::new() }
    }

    fn parts(&self) -> MutexGuard<'_, Option<BTreeMap<u32, Payload>>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, number: u32, body: Payload) -> Result<()> {
        part_number::check(number)?;
        self.parts().as_mut().ok_or_else(ended)?.insert(number, body);
        Ok(())
    }

    /// Returns the parts as one body. Fails if there are none, or one but the last is too short.
    fn joined(&self, parts: &BTreeMap<u32, Payload>) -> Result<Payload> {
        let Some((last, _)) = parts.last_key_value() else {
            return Err(StoreError::Invalid("an upload without parts cannot be completed".into()));
        };
        let least = self.store.limits.part_bytes_min;
        if let Some((number, part)) =
            parts.iter().find(|(number, part)| *number != last && part.len() < least)
        {
            let found = part.len();
            return Err(StoreError::Invalid(format!(
                "part {number} has {found} bytes, but every part except the last needs at least {least}"
            )));
        }
        Ok(parts.values().flat_map(Payload::pieces).map(Bytes::clone).collect())
    }
}

impl fmt::Debug for MemoryUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryUpload").field("key", &self.key).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Multipart for MemoryUpload {
    async fn put_part(&self, number: u32, body: Payload) -> Result<()> {
        self.insert(number, body)
    }

    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()> {
        let source = self.store.find_exactly(from)?.body;
        let range = byte_range::require_inside(&from.key, range, source.len())?;
        self.insert(number, slice(&from.key, &source, range)?)
    }

    async fn complete(&self, precondition: Precondition) -> Result<ObjectRef> {
        if let Some(object) = self.completed.get() {
            return self.store.find_exactly(object).map(|_| object.clone());
        }
        let mut parts = self.parts();
        let body = self.joined(parts.as_ref().ok_or_else(ended)?)?;
        let stored = self.store.store(&self.key, body, self.description.clone(), &precondition)?;
        *parts = None;
        Ok(self.completed.get_or_init(|| stored).clone())
    }

    async fn abort(&self) -> Result<()> {
        *self.parts() = None;
        Ok(())
    }
}

/// Returns the error for an upload that was completed or aborted.
fn ended() -> StoreError {
    StoreError::Invalid("the upload was completed or aborted before".into())
}
