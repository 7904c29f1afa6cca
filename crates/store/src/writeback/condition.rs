//! What a change asks for, and the look at the bucket that it follows.

use super::Writeback;
use super::pending::{Change, Pending};
use crate::{ObjectKey, Precondition, Result, StoreError};

/// What a change needs, and the look at the bucket that it follows.
pub(super) struct Condition<'w> {
    pub(super) precondition: &'w Precondition,
    pub(super) read: Option<BucketRead<'w>>,
}

/// A look at the bucket, which ends when it is dropped.
pub(super) struct BucketRead<'w> {
    writeback: &'w Writeback,
    /// What the bucket has, where it was asked.
    found: Precondition,
}

impl<'w> BucketRead<'w> {
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
    /// Asks the bucket for a condition, where that is wanted and no change of the key waits; or what it is that is changed.
    /// What was seen counts for as long as the look lasts.
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
        let found = self.bucket.find(key).await?.map(|meta| meta.object.etag);
        let holds = self.bucket_condition(key, precondition).holds(found.as_ref());
        read.found = found.map_or(Precondition::Absent, Precondition::Matches);
        if holds {
            Ok(Condition { precondition, read: Some(read) })
        } else {
            Err(StoreError::PreconditionFailed(key.clone()))
        }
    }

    /// What a change needs to find in the bucket.
    pub(super) fn base(&self, pending: &Pending, key: &ObjectKey, condition: &Condition<'_>) -> Precondition {
        let Some(read) = condition.read.as_ref().filter(|_| *condition.precondition == Precondition::None)
        else {
            return pending.base(key, &self.bucket_condition(key, condition.precondition));
        };
        let found = match pending.overlay(key) {
            Some(change) => match &change.object {
                // If it went up during the look.
                Some(object) => {
                    Precondition::Matches(self.aliases().bucket_tag(key, &object.description.etag))
                }
                None => Precondition::Absent,
            },
            None => read.found.clone(),
        };
        pending.base(key, &found)
    }
}

/// A condition against a change that waits; what does not wait is asked for when a change goes up.
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
