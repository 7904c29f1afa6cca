//! Log: the place of the next frame, under a lock that a commit holds until its frame is durable.
//!
//! Owns the copy of the log's state that tasks of the runtime read: they must not wait for the lock, because its holder waits
//! for the device.

use super::Machine;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where the next frame goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Log {
    pub(super) frame: u64,
    /// In the head's zone, in bytes.
    pub(super) at: u64,
    /// The frame that the newest manifest begins with, and how many bytes of frames came since.
    pub(super) since: u64,
    pub(super) since_bytes: u64,
    /// Since the drive was opened.
    pub(super) grown: Grown,
}

/// How much the log grew.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Grown {
    /// The ends of frames and zones included.
    pub(super) log_bytes: u64,
    /// Bytes in the frames.
    pub(super) content_bytes: u64,
}

impl Grown {
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            log_bytes: self.log_bytes - before.log_bytes,
            content_bytes: self.content_bytes - before.content_bytes,
        }
    }

    /// Returns the share of the log that so much of the content took, the ends divided among all.
    pub(crate) fn log_bytes_of(&self, content_bytes: u64) -> u64 {
        (content_bytes as f64 * self.log_bytes as f64 / self.content_bytes.max(1) as f64) as u64
    }
}

/// The log's state, and a copy of it as the last holder of the lock left it.
#[derive(Debug)]
pub(super) struct SharedLog {
    log: Mutex<Log>,
    /// Locked for the time of a copy only.
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

/// The log's state under its lock. The end of the guard publishes it.
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

impl Machine {
    /// Locks the log. Waits for the device while a frame is written and flushed: not for tasks of the runtime.
    pub(super) fn log(&self) -> LogGuard<'_> {
        let held = self.log.log.lock().unwrap_or_else(PoisonError::into_inner);
        LogGuard { held, shared: &self.log }
    }

    /// Returns the log's state before the commit that is under way. Never waits for the device.
    pub(super) fn published_log(&self) -> Log {
        *self.log.published()
    }

    /// How much the log grew since the drive was opened.
    pub(crate) fn log_grown(&self) -> Grown {
        self.published_log().grown
    }

    /// How many bytes of the log a recovery would read.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.published_log().since_bytes
    }

    /// How many bytes the log's zone still takes.
    pub(crate) fn room_in_head(&self) -> u64 {
        self.geometry.zone_bytes() - self.published_log().at
    }

    /// Whether something was committed since the last checkpoint.
    pub(crate) fn is_dirty(&self) -> bool {
        let log = self.published_log();
        log.frame != log.since
    }
}
