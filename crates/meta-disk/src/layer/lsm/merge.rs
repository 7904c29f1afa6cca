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
                    tracing::warn!(
                        "tables of the metadata could not be merged: {error}; they stay in use, and the merge is tried again later"
                    );
                    return;
                }
            }
        }
    }

    /// Replaces tables, the newest of the view when the merge began, by one. `has_oldest` says that they are all tables
    /// of the view, so that tombstones are not needed any more. A flush may add newer tables meanwhile.
    fn merge(&self, replaced: &[Arc<FileTable>], has_oldest: bool) -> Result<(), MergeError> {
        let inputs = replaced
            .iter()
            .map(|table| StoppableCursor { cursor: table.scan(Bound::Unbounded), state: self });
        let merged = match self.build_merged_table(inputs, !has_oldest) {
            Ok(merged) => merged,
            Err(_) if self.is_closing.load(Ordering::Acquire) => return Err(MergeError::IsClosing),
            Err(error) => return Err(MergeError::Failed(error.to_string())),
        };
        let is_replaced =
            |table: &Arc<FileTable>| replaced.iter().any(|replaced| Arc::ptr_eq(replaced, table));
        self.install(None, &[], |view| {
            let at = view.tables.iter().position(is_replaced).unwrap_or(0);
            let mut tables: Vec<_> =
                view.tables.iter().filter(|table| !is_replaced(table)).cloned().collect();
            tables.splice(at..at, merged.clone());
            View { tables, ..view.clone() }
        })
        .map_err(|error| MergeError::Failed(error.to_string()))?;
        replaced.iter().for_each(|table| table.mark_obsolete());
        Ok(())
    }
}

/// The reason why a merge of table files ended early.
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
