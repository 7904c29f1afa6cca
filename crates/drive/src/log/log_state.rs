//! The state of the log: the position of the next frame. A commit holds its lock until the frame is durable.
//!
//! Owns the copy of the state that async tasks read. They must not wait for the lock, as its holder waits for the device.

use crate::format::{FrameHeader, Geometry};
use crate::policy::LogSize;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The position of the next frame, and the growth of the log since the last checkpoint and since the opening.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogState {
    /// The number of the next frame.
    pub(crate) next_frame: u64,
    /// Bytes from the beginning of the head zone.
    pub(crate) head_at: u64,
    /// The first frame after the last checkpoint, and the bytes of frames written since.
    pub(crate) checkpoint_frame: u64,
    pub(crate) bytes_since_checkpoint: u64,
    /// Growth since the drive was opened.
    growth: LogGrowth,
}

/// The place of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FramePlace {
    /// Bytes from the device's beginning.
    pub(crate) at: u64,
    /// Bytes from the zone's beginning.
    pub(crate) in_zone: u64,
    /// The zone in which the log continues when the frame's zone is full.
    pub(crate) next_zone: u64,
    /// Whether the frame is the first in the log's next zone.
    pub(crate) advances: bool,
}

impl LogState {
    /// Returns the state before a frame at a position of the head zone. All earlier frames are in tables.
    pub(crate) fn at_checkpoint(next_frame: u64, head_at: u64) -> Self {
        Self {
            next_frame,
            head_at,
            checkpoint_frame: next_frame,
            bytes_since_checkpoint: 0,
            growth: LogGrowth::default(),
        }
    }

    /// Records that a frame lies at a place, and returns its end in bytes from the zone's beginning.
    pub(crate) fn record(&mut self, place: &FramePlace, header: &FrameHeader, geometry: Geometry) -> u64 {
        let len_bytes = geometry.frame_bytes(header);
        let end = place.in_zone + len_bytes;
        // Paired with `FrameReader`, which reads no frame beyond its zone's end: such a frame would be lost.
        assert!(end <= geometry.zone_bytes(), "a frame ends at {end}, beyond its zone");
        assert_eq!(header.number, self.next_frame, "frames have consecutive numbers");
        if place.advances {
            self.growth.log_bytes += geometry.zone_bytes() - self.head_at;
        }
        self.growth.log_bytes += len_bytes;
        self.growth.content_bytes += header.content_bytes();
        self.head_at = end;
        self.bytes_since_checkpoint += len_bytes;
        self.next_frame += 1;
        end
    }

    /// Returns the length of the log, for the admission policy.
    pub(crate) fn size(&self) -> LogSize {
        LogSize { head_bytes: self.head_at, since_checkpoint_bytes: self.bytes_since_checkpoint }
    }

    /// Returns the growth of the log since the drive was opened.
    pub(crate) fn growth(&self) -> LogGrowth {
        self.growth
    }

    /// Returns whether anything was committed since the last checkpoint.
    pub(crate) fn is_dirty(&self) -> bool {
        self.next_frame != self.checkpoint_frame
    }
}

/// Growth of the log since the drive was opened, or between two moments ([`since`](Self::since)).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LogGrowth {
    /// Bytes of the log, padding at the ends of frames and zones included.
    log_bytes: u64,
    /// Bytes of frames without padding.
    content_bytes: u64,
}

impl LogGrowth {
    /// Returns the growth since `before`.
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
pub(crate) struct SharedLog {
    /// Held while a frame is written and flushed.
    state: Mutex<LogState>,
    /// Held only for the time of a copy.
    published: Mutex<LogState>,
}

impl SharedLog {
    pub(crate) fn new(state: LogState) -> Self {
        Self { state: Mutex::new(state), published: Mutex::new(state) }
    }

    /// Locks the log. Blocks while a frame is written and flushed, so async tasks must not call this.
    pub(crate) fn lock(&self) -> LogGuard<'_> {
        let held = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        LogGuard { held, shared: self }
    }

    /// Returns the state of the log when its lock was last released: before a commit in progress. Never waits for the
    /// device.
    pub(crate) fn published(&self) -> LogState {
        *self.lock_published()
    }

    fn lock_published(&self) -> MutexGuard<'_, LogState> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The locked state of the log. Dropping the guard publishes a copy.
pub(crate) struct LogGuard<'a> {
    held: MutexGuard<'a, LogState>,
    shared: &'a SharedLog,
}

impl Deref for LogGuard<'_> {
    type Target = LogState;

    fn deref(&self) -> &LogState {
        &self.held
    }
}

impl DerefMut for LogGuard<'_> {
    fn deref_mut(&mut self) -> &mut LogState {
        &mut self.held
    }
}

impl Drop for LogGuard<'_> {
    fn drop(&mut self) {
        *self.shared.lock_published() = *self.held;
    }
}
