//! Options of a write-back log.

use crate::conflict::LostKey;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use store::ObjectKey;

/// Options of a write-back log.
#[derive(Clone)]
pub struct WritebackOptions {
    /// Length of the log, in bytes, above which new changes wait.
    pub limit_bytes: u64,
    /// Number of pending changes at which new changes wait. A change takes some hundred bytes of memory.
    pub limit_changes: usize,
    /// A change that waits for room fails when nothing was uploaded for this long.
    pub patience: Duration,
    /// Age at which a change is uploaded. Many changes are replaced or deleted before they reach it. While the log is more than
    /// half full, or a caller waits for the uploads, changes are uploaded at once.
    pub delay: Duration,
    /// Checks a condition on a key without a pending change against the bucket at once, for one more request.
    pub checks_at_once: bool,
    /// Keys that other clients change too. A change without a precondition is made over exactly what the bucket has
    /// under such a key at the time, for one more request, so that what other clients do to the object before the
    /// upload is not lost.
    pub shared: SharedKeys,
    /// No key is used again after its deletion, nor for other bytes: an object that was never uploaded need not be
    /// deleted in the bucket.
    pub keys_are_used_once: bool,
    /// Returns the key for our bytes if another client changed the key in the bucket.
    pub lost: LostKey,
    /// Length from which a multipart upload begins to send its parts to the bucket while it is still being written.
    pub early_bytes: u64,
    /// Memory for bodies that are being uploaded, in bytes.
    pub memory_bytes: u64,
}

/// A function that returns whether other clients change a key too.
pub type SharedKeys = Arc<dyn Fn(&ObjectKey) -> bool + Send + Sync>;

impl fmt::Debug for WritebackOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WritebackOptions").field("limit_bytes", &self.limit_bytes).finish_non_exhaustive()
    }
}
