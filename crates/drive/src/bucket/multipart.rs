//! Multipart upload of one caller: the bytes of its parts are stored in runs, but the list of parts is in memory only,
//! and the index has nothing of the upload before it completes.

use super::DriveBucket;
use super::copy::copy_range;
use crate::format::{Body, RunSlice};
use crate::frontend::Stored;
use crate::space::Hold;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use store::{
    Attributes, Multipart, ObjectKey, ObjectRef, Payload, Precondition, Result, StoreError, Tags, part_number,
};

/// The minimum size of every part but the last, in bytes, as on S3.
pub(super) const PART_BYTES_MIN: u64 = 5 << 20;

/// A multipart upload whose list of parts is in memory only. Dropping it frees the runs of its parts.
pub(crate) struct DriveMultipart {
    bucket: DriveBucket,
    key: ObjectKey,
    /// The attributes and the tags of the object that the upload creates.
    description: (Attributes, Tags),
    /// The parts by number; `None` after completion or abortion.
    parts: Mutex<Option<BTreeMap<u32, Part>>>,
    /// The completed object. A caller that missed the outcome may complete again.
    completed: OnceLock<ObjectRef>,
}

/// A stored part. Cloned for a completion, so that a failed completion keeps it.
#[derive(Debug, Clone)]
struct Part {
    slices: Vec<RunSlice>,
    /// Guards that keep the runs of the part allocated.
    holds: Vec<Hold>,
    cache_numbers: Vec<(u64, usize)>,
}

impl Part {
    fn len_bytes(&self) -> u64 {
        self.slices.iter().map(|slice| slice.len_bytes).sum()
    }
}

impl DriveMultipart {
    pub(crate) fn new(bucket: DriveBucket, key: ObjectKey, description: (Attributes, Tags)) -> Self {
        Self {
            bucket,
            key,
            description,
            parts: Mutex::new(Some(BTreeMap::new())),
            completed: OnceLock::new(),
        }
    }

    fn parts(&self) -> MutexGuard<'_, Option<BTreeMap<u32, Part>>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds or replaces a part. Fails if the upload was completed or aborted.
    pub(crate) fn insert(&self, number: u32, stored: Stored) -> Result<()> {
        let Body::Runs(slices) = stored.body else { return Ok(()) };
        let part = Part { slices, holds: stored.holds, cache_numbers: stored.cache_numbers };
        self.parts().as_mut().ok_or_else(ended)?.insert(number, part);
        Ok(())
    }

    /// Returns the parts in order, after checking that they can form an object.
    fn checked_parts(&self) -> Result<Vec<Part>> {
        let parts = self.parts();
        let parts = parts.as_ref().ok_or_else(ended)?;
        let Some((last, _)) = parts.last_key_value() else {
            return Err(StoreError::Invalid("an upload without parts cannot be completed".into()));
        };
        if let Some((number, part)) =
            parts.iter().find(|(number, part)| *number != last && part.len_bytes() < PART_BYTES_MIN)
        {
            let found = part.len_bytes();
            return Err(StoreError::Invalid(format!(
                "part {number} has {found} bytes, but every part except the last needs at least {PART_BYTES_MIN}"
            )));
        }
        Ok(parts.values().cloned().collect())
    }
}

impl fmt::Debug for DriveMultipart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriveMultipart").field("key", &self.key).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl Multipart for DriveMultipart {
    async fn put_part(&self, number: u32, body: Payload) -> Result<()> {
        part_number::check(number)?;
        let stored = self.bucket.frontend.store_in_runs(body).await?;
        self.insert(number, stored)
    }

    async fn copy_part(&self, number: u32, from: &ObjectRef, range: Range<u64>) -> Result<()> {
        part_number::check(number)?;
        let stored = copy_range(&self.bucket, from, range).await?;
        self.insert(number, stored)
    }

    async fn complete(&self, precondition: Precondition) -> Result<ObjectRef> {
        if let Some(object) = self.completed.get() {
            return self.bucket.pinned_exact(object).await.map(|_| object.clone());
        }
        let parts = self.checked_parts()?;
        let slices = parts.iter().flat_map(|part| part.slices.iter().copied()).collect();
        let cache_numbers = parts.iter().flat_map(|part| part.cache_numbers.iter().copied()).collect();
        let holds = parts.into_iter().flat_map(|part| part.holds).collect();
        let stored = Stored { cache_numbers, ..Stored::of_slices(slices, holds) };
        let object = self.bucket.put_body(&self.key, stored, self.description.clone(), &precondition).await?;
        *self.parts() = None;
        Ok(self.completed.get_or_init(|| object).clone())
    }

    async fn abort(&self) -> Result<()> {
        *self.parts() = None;
        Ok(())
    }
}

fn ended() -> StoreError {
    StoreError::Invalid("the upload was completed or aborted before".into())
}
