//! Merges of table files, so that reads look into few of them.

use super::{State, View};
use bytes::Bytes;
use sst::{FileTable, TableFile};
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl State {
    /// Merges tables until no merge is due.
    pub(super) fn merge_due(&self) {
        loop {
            let tables = self.view().tables.clone();
            let lengths: Vec<u64> =
                tables.iter().map(|table| sst::Source::len_bytes(table.source())).collect();
            let Some(count) = sst::tables_to_merge(&lengths) else { return };
            match self.merge(&tables[..count], count == tables.len()) {
                Ok(()) => {}
                Err(MergeError::IsClosing) => return,
                Err(MergeError::Failed(error)) => {
                    tracing::warn!("tables of the metadata could not be merged: {error}");
                    return;
                }
            }
        }
    }

    /// Replaces the newest tables of a view by one. A flush may add newer tables meanwhile.
    fn merge(&self, old: &[Arc<FileTable>], has_oldest: bool) -> Result<(), MergeError> {
        let inputs =
            old.iter().map(|table| StoppableCursor { cursor: table.scan(Bound::Unbounded), state: self });
        let merged = match self.build_merged_table(inputs, !has_oldest) {
            Ok(merged) => merged,
            Err(_) if self.is_closing.load(Ordering::Acquire) => return Err(MergeError::IsClosing),
            Err(error) => return Err(MergeError::Failed(error.to_string())),
        };
        let is_old = |table: &Arc<FileTable>| old.iter().any(|old| Arc::ptr_eq(old, table));
        self.install(None, |view| {
            let at = view.tables.iter().position(is_old).unwrap_or(0);
            let mut tables: Vec<_> = view.tables.iter().filter(|table| !is_old(table)).cloned().collect();
            tables.splice(at..at, merged.clone());
            View { tables, ..view.clone() }
        })
        .map_err(|error| MergeError::Failed(error.to_string()))?;
        old.iter().for_each(|table| table.mark_obsolete());
        Ok(())
    }
}

enum MergeError {
    IsClosing,
    Failed(String),
}

/// A cursor that fails once the tree is being closed, so that a long merge does not delay an unmount.
struct StoppableCursor<'a> {
    cursor: sst::Cursor<TableFile>,
    state: &'a State,
}

impl sst::Sorted for StoppableCursor<'_> {
    fn advance(&mut self) -> sst::Result<bool> {
        if self.state.is_closing.load(Ordering::Relaxed) {
            return Err(io::Error::from(io::ErrorKind::Interrupted).into());
        }
        self.cursor.advance()
    }

    fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    fn value(&self) -> &Bytes {
        self.cursor.value()
    }
}
