//! The notes that are still needed.

use super::extent::Extent;
use log::SegmentedLog;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Numbers of notes, ascending, and where the notes are.
pub(super) type NoteLocations = VecDeque<(u64, Extent)>;

/// The notes that are still needed.
#[derive(Debug, Default)]
pub(super) struct Notes {
    kept: Mutex<NoteLocations>,
    pub(super) on_trim: OnceLock<TrimCallback>,
    /// The owner is being asked to forget notes.
    pub(super) is_trimming: AtomicBool,
}

/// Asks the owner of the notes to forget them.
pub(super) struct TrimCallback(pub(super) Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for TrimCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TrimCallback")
    }
}

impl Notes {
    /// Returns the notes that a replay of the log has found.
    pub(super) fn of(kept: NoteLocations) -> Self {
        Self { kept: Mutex::new(kept), ..Self::default() }
    }

    /// Returns the locations of the notes that are kept.
    pub(super) fn kept(&self) -> MutexGuard<'_, NoteLocations> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether notes hold a segment older than the last two.
    pub(super) fn hold_old_segments(&self, log: &SegmentedLog) -> bool {
        let kept = self.kept();
        let oldest = kept.front().and_then(|(_, extent)| match extent {
            Extent::Log(segment, _) => Some(segment.number),
            Extent::Bucket(..) => None,
        });
        oldest.is_some_and(|oldest| oldest + 1 < log.newest_number())
    }
}
