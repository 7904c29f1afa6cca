//! The progress of all batches that this process has opened or found, also after their namespaces are closed.

use batch::{PrivateEngine, Progress};
use meta::{Batch, BatchId};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use store::Timestamp;

/// File that marks a batch that was submitted: `tenon batch end` was called, and its merge has failed or not ended yet. Its content is [`LAZY`] if
/// the batch is to be merged in the background, and empty otherwise.
const SUBMITTED_FILE: &str = "submitted";

const LAZY: &str = "lazy";

/// The way in which a batch was submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Submission {
    /// A command or program waits for the merge, and repeats it if it fails.
    Waited,
    /// The batch is to be merged in the background, also by a later mount.
    Lazy,
}

/// The jobs of a volume.
#[derive(Debug, Default)]
pub(super) struct Jobs(Mutex<BTreeMap<BatchId, Job>>);

/// A batch's job.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) progress: Arc<Progress>,
    /// The names of the job while its namespace is open.
    pub(super) engine: Weak<PrivateEngine>,
    /// A time before which the last change was made, of a log that could not be opened.
    last_change_max: Option<Timestamp>,
}

impl Jobs {
    /// Adds a job whose namespace was opened.
    pub(super) fn opened(&self, id: BatchId, engine: &Arc<PrivateEngine>) {
        let progress = Arc::clone(engine.progress());
        let job = Job { progress, engine: Arc::downgrade(engine), last_change_max: None };
        self.lock().insert(id, job);
    }

    /// Adds a job whose namespace cannot be opened, from the log in its directory; nothing if the log cannot be read.
    pub(super) fn found(&self, id: BatchId, dir: &Path) {
        let path = batch::log_path(dir);
        let Ok(progress) = Progress::read(&path) else { return };
        let modified = fs::metadata(path).and_then(|file| file.modified()).ok();
        let last_change_max = modified.map(Timestamp::from_system_time);
        let job = Job { progress: Arc::new(progress), engine: Weak::new(), last_change_max };
        self.lock().insert(id, job);
    }

    pub(super) fn get(&self, id: BatchId) -> Option<Job> {
        self.lock().get(&id).cloned()
    }

    pub(super) fn remove(&self, id: BatchId) {
        self.lock().remove(&id);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<BatchId, Job>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    /// Returns the time of the last change, or of the beginning if there was no change.
    pub(super) fn last_change(&self, record: &Batch) -> Timestamp {
        let last = self.progress.totals().last.max(self.last_change_max);
        last.unwrap_or(record.began).max(record.began)
    }
}

/// Marks a batch as submitted, durably.
pub(super) fn mark_submitted(dir: &Path, submission: Submission) -> std::io::Result<()> {
    let text = if submission == Submission::Lazy { LAZY } else { "" };
    crate::process::files::write_durably(&dir.join(SUBMITTED_FILE), text)
}

/// Returns whether a batch was submitted to be merged in the background.
pub(super) fn is_lazy(dir: &Path) -> bool {
    fs::read_to_string(dir.join(SUBMITTED_FILE)).is_ok_and(|text| text.trim_end() == LAZY)
}

/// Returns whether a batch was submitted.
pub(super) fn is_submitted(dir: &Path) -> bool {
    dir.join(SUBMITTED_FILE).exists()
}
