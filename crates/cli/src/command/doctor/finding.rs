//! The outcome of one check.

use serde::Serialize;
use std::fmt;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Level {
    Ok,
    Warning,
    Failed,
}

/// The outcome of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// Subject of the check.
    pub(super) check: String,
    pub(super) level: Level,
    /// State of the subject.
    pub(super) found: String,
    /// Remedy; empty if none is needed.
    pub(super) advice: String,
}

impl Finding {
    pub(super) fn ok(check: &str, found: impl Into<String>) -> Self {
        Self { check: check.to_owned(), level: Level::Ok, found: found.into(), advice: String::new() }
    }

    pub(super) fn warning(check: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: Level::Warning, advice: advice.into(), ..Self::ok(check, found) }
    }

    pub(super) fn failed(check: &str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: Level::Failed, advice: advice.into(), ..Self::ok(check, found) }
    }
}

/// Shows the finding on one line, and its advice on a second.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Failed => "FAILED",
        };
        write!(f, "{level:<8} {:<22} {}", self.check, self.found)?;
        if self.advice.is_empty() { Ok(()) } else { write!(f, "\n{:<8} {:<22} {}", "", "", self.advice) }
    }
}
