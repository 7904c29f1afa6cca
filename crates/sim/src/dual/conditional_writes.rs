//! Conditional changes that exclude each other: of several at most one succeeds.

use super::key_history::{ChangeId, Content, History, Moment};
use bytes::Bytes;

/// What a change asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    Absent,
    Content(Bytes),
}

/// A conditional change that succeeded.
struct Won {
    key: String,
    asked: Asked,
    id: ChangeId,
    at: (Moment, Moment),
}

/// All of a round.
#[derive(Default)]
pub(super) struct Conditions(Vec<Won>);

impl Conditions {
    pub(super) fn won(&mut self, key: &str, asked: Asked, id: ChangeId, at: (Moment, Moment)) {
        self.0.push(Won { key: key.into(), asked, id, at });
    }

    /// Two that asked for the same both won only if the key was that again in between.
    pub(super) fn exclude_each_other(&self, history: &History) -> Result<(), String> {
        for (index, one) in self.0.iter().enumerate() {
            for other in &self.0[index + 1..] {
                let is_again = || {
                    let wanted: Content = match &one.asked {
                        Asked::Absent => None,
                        Asked::Content(bytes) => Some(bytes.clone()),
                    };
                    let span = (one.at.0.min(other.at.0), one.at.1.max(other.at.1));
                    history.may_become(&one.key, &wanted, span, &[one.id, other.id])
                };
                if one.key == other.key && one.asked == other.asked && history.knows(&one.key) && !is_again()
                {
                    return Err(format!("two changes of '{}' both found it {:?}", one.key, one.asked));
                }
            }
        }
        Ok(())
    }
}
