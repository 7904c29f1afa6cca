//! The scrub of the drives that is started from the console.

use crate::process::{Process, ScrubOutcome};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The scrub that is started from the console: at most one runs at a time. Scrubs by `tenon` commands are not known here.
#[derive(Debug, Default)]
pub(crate) struct ScrubJob {
    /// Number of objects that the scrub has read.
    objects: Arc<AtomicU64>,
    state: Mutex<ScrubState>,
}

/// State of the scrub.
#[derive(Debug, Clone, Default)]
pub(crate) enum ScrubState {
    #[default]
    NeverRun,
    Running,
    /// The last scrub has ended: its outcome for each drive, or the reason why it failed.
    Ended(Result<Vec<ScrubOutcome>, String>),
}

impl ScrubJob {
    fn lock(&self) -> MutexGuard<'_, ScrubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state.
    pub(crate) fn state(&self) -> ScrubState {
        self.lock().clone()
    }

    /// Returns the number of objects that the running scrub, or the last one, has read.
    pub(crate) fn objects(&self) -> u64 {
        self.objects.load(Ordering::Relaxed)
    }

    /// Starts a scrub in the background. Returns false if one is running.
    pub(crate) fn start(self: &Arc<Self>, process: Arc<dyn Process>) -> bool {
        let mut state = self.lock();
        if matches!(*state, ScrubState::Running) {
            return false;
        }
        *state = ScrubState::Running;
        self.objects.store(0, Ordering::Relaxed);
        let job = self.clone();
        tokio::spawn(async move {
            let running = tokio::spawn({
                let objects = job.objects.clone();
                async move { process.scrub(objects).await }
            });
            let outcome = running.await.unwrap_or_else(|error| Err(error.to_string()));
            *job.lock() = ScrubState::Ended(outcome);
        });
        true
    }
}
