//! Snapshots of the tree.

use super::memtable::Version;
use super::readers::ReaderGuard;
use super::{Cursor, View};
use bytes::Bytes;
use meta::{EngineError, KeyRange};
use std::sync::Arc;

/// A state of the tree that no later write changes. It keeps the table files that it reads.
pub(crate) struct Snapshot {
    view: Arc<View>,
    guard: ReaderGuard,
}

impl Snapshot {
    pub(super) fn new(view: Arc<View>, guard: ReaderGuard) -> Self {
        Self { view, guard }
    }

    fn version(&self) -> Version {
        self.guard.version
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.view.get(key, self.version())
    }

    /// Returns a cursor up to a key.
    pub(crate) fn cursor(&self, to: Option<Vec<u8>>) -> Cursor<'_> {
        Cursor::new(self.view.clone(), self.version(), None, to)
    }

    /// Returns the last row of a range.
    pub(crate) fn last(&self, range: &KeyRange) -> Result<Option<(Bytes, Bytes)>, EngineError> {
        self.view.last(range, self.version())
    }
}
