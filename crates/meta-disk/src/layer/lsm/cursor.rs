//! Cursors over memtables and table files together.

use super::View;
use super::memtable::{self, MemtableCursor, Version};
use super::readers::ReaderGuard;
use crate::error;
use bytes::Bytes;
use meta::EngineError;
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;

/// A cursor over the rows of a view up to an upper bound, without tombstones.
pub(crate) struct Cursor<'a> {
    view: Arc<View>,
    /// The version that the cursor reads; later publications are invisible.
    version: Version,
    /// Keeps the version's values, unless the snapshot that the cursor reads does.
    _guard: Option<ReaderGuard>,
    /// The first key after the range; `None` if the range is unbounded.
    to: Option<Vec<u8>>,
    merge: sst::Merge<Input>,
    /// Whether there is a row at the cursor.
    is_at_row: bool,
    error: Option<EngineError>,
    /// The tree or the snapshot, which keeps the version's values.
    _source: PhantomData<&'a ()>,
}

impl Cursor<'_> {
    /// Returns a cursor that has no row until it is moved to a key.
    pub(super) fn new(
        view: Arc<View>,
        version: Version,
        guard: Option<ReaderGuard>,
        to: Option<Vec<u8>>,
    ) -> Self {
        let merge = sst::Merge::new([]);
        Self { view, version, _guard: guard, to, merge, is_at_row: false, error: None, _source: PhantomData }
    }

    /// Moves to a key, or to the next key if it does not exist.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        self.merge = merge(&self.view, self.version, Bound::Included(key));
        self.next();
    }

    pub(crate) fn next(&mut self) {
        self.is_at_row = match self.advance() {
            Ok(is_at_row) => is_at_row,
            Err(error) => {
                self.error.get_or_insert(error::table_error(error));
                false
            }
        };
    }

    /// Returns the key and the row at the cursor; `None` behind the last row.
    pub(crate) fn item(&self) -> Option<(&[u8], &[u8])> {
        self.is_at_row.then(|| (self.merge.key(), &self.merge.value()[..]))
    }

    /// Fails if the iteration ended because of an error.
    pub(crate) fn finish(self) -> Result<(), EngineError> {
        self.error.map_or(Ok(()), Err)
    }

    fn advance(&mut self) -> sst::Result<bool> {
        while self.merge.advance()? {
            if self.to.as_ref().is_some_and(|to| self.merge.key() >= &to[..]) {
                return Ok(false);
            }
            if !self.merge.value().is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns the entries of a view at a version, tombstones included.
pub(super) fn merge(view: &View, version: Version, from: Bound<&[u8]>) -> sst::Merge<Input> {
    let memtable = |memtable: &Arc<_>| Input::Memtable(memtable::scan(memtable, version, from));
    let tables = view.tables.iter().map(|table| Input::Table(Box::new(table.scan_part(from))));
    sst::Merge::new(view.memtables().map(memtable).chain(tables))
}

/// One input of a merge.
pub(super) enum Input {
    Memtable(MemtableCursor),
    Table(Box<sst::Cursor<sst::TableFile>>),
}

impl sst::Sorted for Input {
    fn advance(&mut self) -> sst::Result<bool> {
        match self {
            Self::Memtable(cursor) => cursor.advance(),
            Self::Table(cursor) => cursor.advance(),
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            Self::Memtable(cursor) => cursor.key(),
            Self::Table(cursor) => cursor.key(),
        }
    }

    fn value(&self) -> &Bytes {
        match self {
            Self::Memtable(cursor) => cursor.value(),
            Self::Table(cursor) => cursor.value(),
        }
    }
}
