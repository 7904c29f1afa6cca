//! What happened in a world, line by line: the same seed tells the same tale.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The lines of one world. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Tale(Arc<Mutex<Vec<String>>>);

/// So many of the last lines tell a failure.
const TOLD_OF_FAILURE: usize = 40;

impl Tale {
    pub(crate) fn tell(&self, line: impl Into<String>) {
        self.lines().push(line.into());
    }

    /// The end of the tale, for people.
    pub(crate) fn end(&self) -> String {
        let lines = self.lines();
        lines[lines.len().saturating_sub(TOLD_OF_FAILURE)..].join("\n")
    }

    pub(crate) fn whole(&self) -> Vec<String> {
        self.lines().clone()
    }

    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Tale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a tale of {} lines", self.lines().len())
    }
}
