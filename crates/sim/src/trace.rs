//! The trace of a world: a log of its events. The same seed gives the same trace.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The lines of one world. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<Vec<String>>>);

/// Number of lines from the end of the trace that a failure message shows.
const LINES_IN_FAILURE: usize = 40;

impl Trace {
    pub(crate) fn push(&self, line: impl Into<String>) {
        self.lock().push(line.into());
    }

    /// Returns the last lines for a failure message.
    pub(crate) fn tail(&self) -> String {
        let lines = self.lock();
        lines[lines.len().saturating_sub(LINES_IN_FAILURE)..].join("\n")
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a trace of {} lines", self.lock().len())
    }
}
