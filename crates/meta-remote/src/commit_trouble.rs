//! The report of commits that the database refuses: one line in the log when they begin to fail, and one when they succeed again.

use crate::error::Failure;
use meta::EngineError;
use std::time::Duration;
use tokio::time::Instant;

/// Minimum time between two reports of failing commits. Removals may succeed in a full database while other changes fail.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// A line of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    Failing(String),
    Succeeding,
}

/// Whether commits fail, as far as it was reported.
#[derive(Debug, Default)]
pub(crate) struct CommitTrouble {
    is_failing: bool,
    reported_at: Option<Instant>,
}

impl CommitTrouble {
    /// Notes the outcome of a commit, and reports it if it differs from what was reported.
    pub(crate) fn take_in<T>(&mut self, outcome: &Result<T, Failure>) {
        match self.line(outcome, Instant::now()) {
            Some(Line::Failing(what)) => tracing::error!("changes of names and attributes fail: {what}"),
            Some(Line::Succeeding) => {
                tracing::info!("the database makes changes of names and attributes again")
            }
            None => {}
        }
    }

    fn line<T>(&mut self, outcome: &Result<T, Failure>, now: Instant) -> Option<Line> {
        let Err(failure) = outcome else {
            return std::mem::take(&mut self.is_failing).then_some(Line::Succeeding);
        };
        let what = describe(failure)?;
        if self.is_failing || self.reported_at.is_some_and(|at| now - at < REPORT_INTERVAL) {
            return None;
        }
        self.is_failing = true;
        self.reported_at = Some(now);
        Some(Line::Failing(what))
    }
}

/// Describes a failure that all changes have; `None` for one of a single change.
fn describe(failure: &Failure) -> Option<String> {
    match failure {
        Failure::Merge(_) => None,
        Failure::Refused(EngineError::Full(reason)) => {
            Some(format!("the database is full, and works again once it has room ({reason})"))
        }
        Failure::Refused(error) => Some(error.to_string()),
        Failure::Lost(reason) | Failure::Aborted(reason) => Some(reason.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_database_is_one_line() {
        let mut trouble = CommitTrouble::default();
        let began_at = Instant::now();
        let mut line = |outcome: Result<(), Failure>, seconds| {
            trouble.line(&outcome, began_at + Duration::from_secs(seconds))
        };
        let full = || Err(Failure::Refused(EngineError::Full("no room".into())));
        assert_eq!(line(Ok(()), 0), None);
        assert_eq!(line(Err(Failure::Merge("a link count".into())), 0), None);
        assert!(matches!(line(full(), 1), Some(Line::Failing(what)) if what.contains("no room")));
        assert_eq!(line(full(), 2), None);
        // A removal succeeds.
        assert_eq!(line(Ok(()), 3), Some(Line::Succeeding));
        assert_eq!(line(full(), 4), None);
        assert_eq!(line(Ok(()), 5), None);
        assert!(matches!(line(full(), 62), Some(Line::Failing(_))));
        assert_eq!(line(Ok(()), 63), Some(Line::Succeeding));
    }
}
