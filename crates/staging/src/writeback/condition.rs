//! The condition of a change, and the bucket read that checked it.

use super::Writeback;
use super::pending::{Change, Pending};
use store::{ObjectKey, Precondition, Result, StoreError};

/// A precondition, and the bucket read that it was checked in.
pub(super) struct Condition<'w> {
    pub(super) precondition: &'w Precondition,
    pub(super) read: Option<BucketRead<'w>>,
}

/// A read of the bucket in progress; it ends when dropped.
pub(super) struct BucketRead<'w> {
    writeback: &'w Writeback,
    /// State of the key in the bucket, as a precondition that it meets; `Precondition::None` if the bucket was not
    /// asked.
    found: Precondition,
}

impl<'w> BucketRead<'w> {
    /// Begins a read of the bucket. Changes that are done meanwhile are remembered until it ends.
    pub(super) fn begin(writeback: &'w Writeback) -> Self {
        writeback.pending().begin_bucket_read();
        Self { writeback, found: Precondition::None }
    }
}

impl Drop for BucketRead<'_> {
    fn drop(&mut self) {
        self.writeback.pending().end_bucket_read();
    }
}

impl Writeback {
    /// Checks a precondition against the bucket if the options want that and no change of the key is pending. Without
    /// a precondition, asks what the bucket has under a shared key. The result stays valid until the returned
    /// condition is dropped.
    pub(super) async fn check_in_bucket<'a>(
        &'a self,
        key: &ObjectKey,
        precondition: &'a Precondition,
    ) -> Result<Condition<'a>> {
        let is_asked = match precondition {
            Precondition::None => (self.options.shared)(key),
            _ => self.options.checks_at_once,
        };
        if !is_asked {
            return Ok(Condition { precondition, read: None });
        }
        let mut read = BucketRead::begin(self);
        if self.pending().overlay(key).is_some() {
            return Ok(Condition { precondition, read: Some(read) });
        }
        let found = self.bucket.store.find(key).await?.map(|meta| meta.object.etag);
        let holds = self.etags.aliases().bucket_condition(key, precondition).holds(found.as_ref());
        read.found = found.map_or(Precondition::Absent, Precondition::Matches);
        if holds {
            Ok(Condition { precondition, read: Some(read) })
        } else {
            Err(StoreError::PreconditionFailed(key.clone()))
        }
    }

    /// Returns what the bucket must have when the change is uploaded.
    pub(super) fn base(&self, pending: &Pending, key: &ObjectKey, condition: &Condition<'_>) -> Precondition {
        let Some(read) = condition.read.as_ref().filter(|_| *condition.precondition == Precondition::None)
        else {
            return pending.base(key, &self.etags.aliases().bucket_condition(key, condition.precondition));
        };
        let found = match pending.overlay(key) {
            Some(change) => match &change.object {
                // The object may have been uploaded during the read.
                Some(object) => {
                    Precondition::Matches(self.etags.aliases().bucket_tag(key, &object.description.etag))
                }
                None => Precondition::Absent,
            },
            None => read.found.clone(),
        };
        pending.base(key, &found)
    }
}

/// Checks a condition against a pending change. Without one the condition is checked when the change is uploaded.
pub(super) fn check_pending(
    key: &ObjectKey,
    pending: Option<&Change>,
    condition: &Precondition,
) -> Result<()> {
    let Some(change) = pending else { return Ok(()) };
    if condition.holds(change.object.as_ref().map(|object| &object.description.etag)) {
        Ok(())
    } else {
        Err(StoreError::PreconditionFailed(key.clone()))
    }
}
