//! Successful conditional changes of a round: at most one of several mutually exclusive ones may succeed.

use super::key_history::{ChangeId, Content, History, Moment};
use bytes::Bytes;

/// The condition of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Condition {
    Absent,
    Content(Bytes),
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
    /// in between.
    pub(super) fn check_exclusive(&self, history: &History) -> Result<(), String> {
        for (index, first) in self.0.iter().enumerate() {
            for second in &self.0[index + 1..] {
                let could_recur = || {
                    let wanted: Content = match &first.condition {
                        Condition::Absent => None,
                        Condition::Content(bytes) => Some(bytes.clone()),
                    };
                    let span = (first.at.0.min(second.at.0), first.at.1.max(second.at.1));
                    history.may_become(&first.key, &wanted, span, &[first.id, second.id])
                };
                if first.key == second.key
                    && first.condition == second.condition
                    && history.is_known(&first.key)
                    && !could_recur()
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
