//! Records of a range of keys, as the users of an engine see them.
//!
//! Invariant: the engine's own records are never returned.

use crate::layer::Cursor;
use crate::row;
use meta::{EngineError, Rows, schema};
use std::ops::Bound;

/// An iterator over the records of a range, without the engine's own records.
pub(crate) struct RecordIterator<'a> {
    cursor: Cursor<'a>,
    /// Whether the range ends before it begins.
    is_empty_range: bool,
}

impl<'a> RecordIterator<'a> {
    /// Begins to iterate over the records of a range.
    pub(crate) fn begin(
        cursor: impl FnOnce(Option<Vec<u8>>) -> Cursor<'a>,
        from: Vec<u8>,
        to: Option<Vec<u8>>,
    ) -> Self {
        let is_empty_range = to.as_ref().is_some_and(|to| *to <= from);
        let mut records = Self { cursor: cursor(to), is_empty_range };
        if !is_empty_range {
            records.seek(&from);
        }
        records
    }

    /// Returns the current record; `None` at the end of the range.
    pub(crate) fn item(&self) -> Option<(&[u8], &[u8])> {
        if self.is_empty_range { None } else { self.cursor.item() }
    }

    pub(crate) fn next(&mut self) {
        self.cursor.next();
        self.skip_own_records();
    }

    /// Moves to a key, or to the next key if it does not exist.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        self.cursor.seek(key);
        self.skip_own_records();
    }

    /// Fails if the iteration ended because of an error.
    pub(crate) fn finish(self) -> Result<(), EngineError> {
        self.cursor.finish()
    }

    /// Moves past the engine's own records.
    fn skip_own_records(&mut self) {
        while let Some((&[tag, ..], _)) = self.item()
            && schema::is_kept_by_engines(&[tag])
        {
            self.cursor.seek(&[tag + 1]);
        }
    }
}

/// Returns the first `limit` records of a range, without the engine's own records.
pub(crate) fn first_rows<'a>(
    cursor: impl FnOnce(Option<Vec<u8>>) -> Cursor<'a>,
    from: Bound<&[u8]>,
    to: Bound<&[u8]>,
    limit: usize,
) -> Result<Rows, EngineError> {
    let mut rows = Vec::new();
    if limit == 0 {
        return Ok(rows);
    }
    let mut records = RecordIterator::begin(cursor, lower_bound(from), upper_bound(to));
    while let Some((key, row)) = records.item() {
        rows.push((key.to_vec(), row::decode(row)?));
        if rows.len() == limit {
            break;
        }
        records.next();
    }
    records.finish()?;
    Ok(rows)
}

/// Returns the bound as the first key that can be in the range.
fn lower_bound(from: Bound<&[u8]>) -> Vec<u8> {
    match from {
        Bound::Included(key) => key.to_vec(),
        Bound::Excluded(key) => successor(key),
        Bound::Unbounded => Vec::new(),
    }
}

/// Returns the bound as the first key after the range; `None` if the range is unbounded.
fn upper_bound(to: Bound<&[u8]>) -> Option<Vec<u8>> {
    match to {
        Bound::Included(key) => Some(successor(key)),
        Bound::Excluded(key) => Some(key.to_vec()),
        Bound::Unbounded => None,
    }
}

/// Returns the key that directly follows a key.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
