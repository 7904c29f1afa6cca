//! Reads of claimed inode records in nearly ascending order.

use crate::table_error::table_error;
use bytes::Bytes;
use meta::{EngineError, Ino, schema};
use sst::{FileTable, TableFile};
use std::ops::Bound;
use std::sync::Arc;

/// Maximum rows that the cursor steps over before it searches for the wanted row instead. Inode numbers of a directory are close together.
const ROWS_SKIPPED_MAX: usize = 32;

/// A cursor that moves to the records of inodes.
pub(crate) struct InodeRows {
    rows: Arc<FileTable>,
    cursor: sst::Cursor<TableFile>,
}

impl InodeRows {
    pub(crate) fn new(rows: Arc<FileTable>) -> Self {
        let cursor = rows.scan_part(Bound::Included(&schema::inodes().from));
        Self { rows, cursor }
    }

    /// Returns the claimed change of an inode's record, encoded; `None` if the batch claims none.
    pub(crate) fn get(&mut self, ino: Ino) -> Result<Option<Bytes>, EngineError> {
        let key = schema::inode(ino);
        let mut skipped = 0;
        while skipped < ROWS_SKIPPED_MAX
            && self.cursor.key() < key.as_slice()
            && self.cursor.advance().map_err(table_error)?
        {
            skipped += 1;
        }
        if self.cursor.key() != key {
            self.cursor = self.rows.scan_part(Bound::Included(&key));
            self.cursor.advance().map_err(table_error)?;
        }
        Ok((self.cursor.key() == key).then(|| self.cursor.value().clone()))
    }
}
