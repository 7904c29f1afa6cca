//! What a change asks for, and the look at the bucket that it follows.

use super::Writeback;
use super::pending::{Change, Pending};
use crate::{ObjectKey, Precondition, Result, StoreError};

/// What a change needs, and the look at the bucket that it follows.
pub(super) struct Asked<'w> {
    pub(super) precondition: &'w Precondition,
    pub(super) look: Option<Look<'w>>,
}

/// A look at the bucket, which ends when it is dropped.
pub(super) struct Look<'w> {
    writeback: &'w Writeback,
    /// What the bucket has, where it was asked.
    over: Precondition,
}

impl<'w> Look<'w> {
    pub(super) fn begin(writeback: &'w Writeback) -> Self {
        writeback.pending().begin_look();
        Self { writeback, over: Precondition::None }
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.writeback.pending().end_look();
    }
}

impl Writeback {
    /// Asks the bucket for a condition, where that is wanted and no change of the key waits; or what it is that is changed.
    /// What was seen counts for as long as the look lasts.
    pub(super) async fn check_there<'a>(
        &'a self,
        key: &ObjectKey,
        precondition: &'a Precondition,
    ) -> Result<Asked<'a>> {
        let is_asked = match precondition {
            Precondition::None => (self.options.shared)(key),
            _ => self.options.checks_at_once,
        };
        if !is_asked {
            return Ok(Asked { precondition, look: None });
        }
        let mut look = Look::begin(self);
        if self.pending().seen(key).is_some() {
            return Ok(Asked { precondition, look: Some(look) });
        }
        let found = self.bucket.find(key).await?.map(|meta| meta.object.etag);
        let holds = self.there(key, precondition).holds(found.as_ref());
        look.over = found.map_or(Precondition::Absent, Precondition::Matches);
        if holds {
            Ok(Asked { precondition, look: Some(look) })
        } else {
            Err(StoreError::PreconditionFailed(key.clone()))
        }
    }

    /// What a change needs to find in the bucket.
    pub(super) fn base(&self, pending: &Pending, key: &ObjectKey, asked: &Asked<'_>) -> Precondition {
        let Some(found) = asked.look.as_ref().filter(|_| *asked.precondition == Precondition::None) else {
            return pending.base(key, &self.there(key, asked.precondition));
        };
        let over = match pending.seen(key) {
            Some(change) => match &change.object {
                // If it went up during the look.
                Some(object) => Precondition::Matches(self.aliases().bucket_tag(key, &object.described.etag)),
                None => Precondition::Absent,
            },
            None => found.over.clone(),
        };
        pending.base(key, &over)
    }
}

/// A condition against a change that waits; what does not wait is asked for when a change goes up.
pub(super) fn check(key: &ObjectKey, waiting: Option<&Change>, asked: &Precondition) -> Result<()> {
    let Some(change) = waiting else { return Ok(()) };
    if asked.holds(change.object.as_ref().map(|object| &object.described.etag)) {
        Ok(())
    } else {
        Err(StoreError::PreconditionFailed(key.clone()))
    }
}
