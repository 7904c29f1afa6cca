//! The versions that snapshots and cursors see, so that the memtable keeps the values they need.

use super::memtable::Version;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The newest published version, and the versions in use.
#[derive(Debug, Default)]
pub(super) struct Readers(Mutex<State>);

/// The versions that readers need.
#[derive(Debug, Default)]
struct State {
    /// The newest published version.
    published: Version,
    /// The number of readers of each version.
    counts: BTreeMap<Version, usize>,
}

/// Keeps the values that its version sees, until it is dropped.
#[derive(Debug)]
pub(super) struct ReaderGuard {
    readers: Arc<Readers>,
    pub(super) version: Version,
}

impl Readers {
    /// Begins to read the newest published version.
    pub(super) fn begin(self: &Arc<Self>) -> ReaderGuard {
        let mut state = self.lock();
        let version = state.published;
        *state.counts.entry(version).or_default() += 1;
        ReaderGuard { readers: self.clone(), version }
    }

    /// Returns the oldest version that a present or future reader sees, and the newest published version.
    pub(super) fn oldest_and_newest(&self) -> (Version, Version) {
        let state = self.lock();
        let oldest = state.counts.keys().next().copied().unwrap_or(state.published);
        (oldest, state.published)
    }

    /// Makes a version visible to new readers.
    pub(super) fn publish(&self, version: Version) {
        let mut state = self.lock();
        assert!(state.published < version, "versions are published in ascending order");
        state.published = version;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        let mut state = self.readers.lock();
        if let Some(count) = state.counts.get_mut(&self.version) {
            *count -= 1;
            if *count == 0 {
                state.counts.remove(&self.version);
            }
        }
    }
}
