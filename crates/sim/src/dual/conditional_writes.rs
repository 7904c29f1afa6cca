//! Successful conditional changes of a round: at most one of several mutually exclusive ones may succeed.

use super::key_history::{ChangeId, Content, History, Moment};
use bytes::Bytes;
use store::ETag;

/// The condition of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Condition {
    Absent,
    /// The object has this tag, which stands for these bytes.
    Content(ETag, Bytes),
}

impl Condition {
    /// Returns the content that a key has while the condition holds.
    pub(super) fn content(&self) -> Content {
        match self {
            Self::Absent => None,
            Self::Content(_, bytes) => Some(bytes.clone()),
        }
    }
}

/// A conditional change that succeeded.
struct ConditionalWrite {
    key: String,
    condition: Condition,
    id: ChangeId,
    at: (Moment, Moment),
}

/// All successful conditional changes of a round.
#[derive(Default)]
pub(super) struct ConditionalWrites(Vec<ConditionalWrite>);

impl ConditionalWrites {
    pub(super) fn record(&mut self, key: &str, condition: Condition, id: ChangeId, at: (Moment, Moment)) {
        self.0.push(ConditionalWrite { key: key.into(), condition, id, at });
    }

    /// Checks that of two changes of a key with the same condition only one succeeded, unless the condition may have become true again
    /// in between. Two tags may stand for one object, whose tag changes when it is uploaded.
    pub(super) fn check_exclusive(&self, history: &History) -> Result<(), String> {
        for (index, first) in self.0.iter().enumerate() {
            for second in &self.0[index + 1..] {
                let wanted = first.condition.content();
                let could_recur = || {
                    let span = (first.at.0.min(second.at.0), first.at.1.max(second.at.1));
                    history.may_become(&first.key, &wanted, span, &[first.id, second.id])
                };
                // A copy of an object with the wanted bytes makes another object of these bytes, with a tag of its own. By inode, all empty
                // objects have the same tag.
                let is_empty = wanted.as_ref().is_some_and(Bytes::is_empty);
                let makes_equal_object = || {
                    (first.condition != second.condition || is_empty)
                        && [first.id, second.id].into_iter().any(|id| history.sets_content(id, &wanted))
                };
                if first.key == second.key
                    && wanted == second.condition.content()
                    && history.is_known(&first.key)
                    && !could_recur()
                    && !makes_equal_object()
                {
                    return Err(format!(
                        "two changes of '{}' succeeded with the same condition {:?}",
                        first.key, first.condition
                    ));
                }
            }
        }
        Ok(())
    }
}
