//! Log: the position of the next frame. A commit holds its lock until the frame is durable.
//!
//! Owns the copy of the log's state that async tasks read. They must not wait for the lock, as its holder waits for the device.

use super::Engine;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The position of the next frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Log {
    pub(super) next_frame: u64,
    /// Bytes from the beginning of the head zone.
    pub(super) head_at: u64,
    /// The first frame after the last checkpoint, and the bytes of frames written since.
    pub(super) checkpoint_frame: u64,
    pub(super) bytes_since_checkpoint: u64,
    /// Growth since the drive was opened.
    pub(super) growth: LogGrowth,
}

/// Growth of the log.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LogGrowth {
    /// Bytes of the log, padding at the ends of frames and zones included.
    pub(super) log_bytes: u64,
    /// Bytes of frames without padding.
    pub(super) content_bytes: u64,
}

impl LogGrowth {
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            log_bytes: self.log_bytes - before.log_bytes,
            content_bytes: self.content_bytes - before.content_bytes,
        }
    }

    /// Returns the log bytes of some content, with a proportional share of the padding.
    pub(crate) fn share_of(&self, content_bytes: u64) -> u64 {
        (content_bytes as f64 * self.log_bytes as f64 / self.content_bytes.max(1) as f64) as u64
    }
}

/// The state of the log, and a copy published when the lock was last released.
#[derive(Debug)]
pub(super) struct SharedLog {
    log: Mutex<Log>,
    /// Held only for the time of a copy.
    published: Mutex<Log>,
}

impl SharedLog {
    pub(super) fn new(log: Log) -> Self {
        Self { log: Mutex::new(log), published: Mutex::new(log) }
    }

    fn published(&self) -> MutexGuard<'_, Log> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The locked state of the log. Dropping the guard publishes a copy.
pub(super) struct LogGuard<'a> {
    held: MutexGuard<'a, Log>,
    shared: &'a SharedLog,
}

impl Deref for LogGuard<'_> {
    type Target = Log;

    fn deref(&self) -> &Log {
        &self.held
    }
}

impl DerefMut for LogGuard<'_> {
    fn deref_mut(&mut self) -> &mut Log {
        &mut self.held
    }
}

impl Drop for LogGuard<'_> {
    fn drop(&mut self) {
        *self.shared.published() = *self.held;
    }
}

impl Engine {
    /// Locks the log. Blocks while a frame is written and flushed, so async tasks must not call this.
    pub(super) fn lock_log(&self) -> LogGuard<'_> {
        let held = self.log.log.lock().unwrap_or_else(PoisonError::into_inner);
        LogGuard { held, shared: &self.log }
    }

    /// Returns the state of the log before the commit in progress. Never waits for the device.
    pub(super) fn published_log(&self) -> Log {
        *self.log.published()
    }

    /// Returns the growth of the log since the drive was opened.
    pub(crate) fn log_growth(&self) -> LogGrowth {
        self.published_log().growth
    }

    /// Returns how many bytes of the log a recovery would read.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.published_log().bytes_since_checkpoint
    }

    /// Returns the bytes left in the head zone.
    pub(crate) fn room_in_head(&self) -> u64 {
        self.geometry.zone_bytes() - self.published_log().head_at
    }

    /// Returns whether anything was committed since the last checkpoint.
    pub(crate) fn is_dirty(&self) -> bool {
        let log = self.published_log();
        log.next_frame != log.checkpoint_frame
    }
}
