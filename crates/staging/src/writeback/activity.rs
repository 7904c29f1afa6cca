//! The state that the upload task and its callers share: wake-ups, progress and counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use tokio::sync::Notify;

/// The state of the uploads.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Wakes the upload task, which then checks what is due. It is notified when a first change is pending, when uploads are urgent (a caller
    /// waits for them or for space, or the log is half full), when sources of copies were released, and when the store was dropped, which ends
    /// the task.
    pub(super) wake: Arc<Notify>,
    /// Notified when a change was uploaded or an attempt failed.
    pub(super) progress: Notify,
    /// Number of upload attempts in progress. They hold the segments that they read.
    pub(super) in_flight: AtomicU64,
    /// Number of changes that this process has uploaded.
    pub(super) uploaded: AtomicU64,
    /// Whether a loss of power could lose the record of an upload.
    pub(super) unsynced_uploads: AtomicBool,
    /// Number of callers that want everything uploaded now.
    pub(super) urgent_callers: AtomicU64,
}
