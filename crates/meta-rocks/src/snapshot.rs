//! Snapshots of the tables.

use crate::error;
use crate::row;
use crate::tables::{Tables, first_rows, last_row};
use meta::{EngineError, KeyRange, Reader, Rows, Versioned, schema};
use rust_rocksdb::ReadOptions;
use std::ops::Bound;
use std::sync::Arc;

/// A view of the tables that no later commit changes.
pub(crate) struct Snapshot {
    /// Borrows the database of `_tables`. The first field, so it is dropped first.
    snapshot: rust_rocksdb::Snapshot<'static>,
    _tables: Arc<Tables>,
}

impl Snapshot {
    pub(crate) fn new(tables: Arc<Tables>) -> Self {
        let snapshot = tables.database().snapshot();
        // SAFETY: the snapshot borrows the database. The database does not move, since it is inside the `Arc`. It is not dropped before
        // the snapshot, since this struct holds the `Arc` and fields are dropped in order of declaration. No copy of the snapshot
        // leaves this type.
        let snapshot = unsafe {
            std::mem::transmute::<rust_rocksdb::Snapshot<'_>, rust_rocksdb::Snapshot<'static>>(snapshot)
        };
        Self { snapshot, _tables: tables }
    }
}

impl Reader for Snapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        if schema::is_kept_by_engines(key) {
            return Ok(None);
        }
        let found = self.snapshot.get_pinned(key).map_err(error::read_error)?;
        found.map(|row| row::decode(&row)).transpose()
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        first_rows(|options| self.snapshot.raw_iterator_opt(options), from, to, limit)
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        last_row(|options: ReadOptions| self.snapshot.raw_iterator_opt(options), range)
    }
}
