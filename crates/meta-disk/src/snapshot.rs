//! Snapshots of the tables.

use crate::layer;
use crate::records::first_rows;
use crate::row;
use meta::codec::decode_head;
use meta::{EngineError, KeyRange, Reader, Rows, Seqno, Versioned, schema};
use std::ops::Bound;

/// A view of the tables that no later commit changes.
pub(crate) struct Snapshot(pub(crate) layer::Snapshot);

impl Snapshot {
    /// Returns the newest commit in the view. A commit and the head record are published together.
    pub(crate) fn head(&self) -> Result<Seqno, EngineError> {
        let missing = || EngineError::Corrupt("the head record is missing".into());
        let record = self.0.get(&schema::head())?.ok_or_else(missing)?;
        Ok(decode_head(&record)?.head)
    }
}

impl Reader for Snapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        if schema::is_kept_by_engines(key) {
            return Ok(None);
        }
        self.0.get(key)?.map(|row| row::decode(&row)).transpose()
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        keys.iter().map(|key| self.get(key)).collect()
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        first_rows(|to| self.0.cursor(to), from, to, limit)
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        if range.to <= range.from {
            return Ok(None);
        }
        self.0.last(range)?.map(|(key, row)| Ok((key.to_vec(), row::decode(&row)?))).transpose()
    }
}
