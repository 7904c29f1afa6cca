//! Sealed batches: a directory with the ops of a private namespace (`ops`), the changes of rows that they make (`rows.sst`), and the versions of
//! records of the base on which they depend (`reads.sst`).
//!
//! Nothing in these files is trusted: their reader bounds its memory, and verification decides what the ops may do.

use crate::change::Change;
use crate::op_log::{LogDamage, OpLogReader, log_path};
use crate::overlay::Overlay;
use crate::private_namespace::{JobError, access};
use crate::table_error::table_error;
use meta::{Condition, EngineError, KeyRange, Op, OpContext, Reader};
use sst::{FileTable, NewTableFile, TableFile};
use std::fs::{self, File};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names of the files of a sealed batch, in its directory.
pub const SEALED_FILES: [&str; 3] = ["ops", "rows.sst", "reads.sst"];

/// Cache of blocks of both tables, in bytes. It is small because they are read mostly in order.
const CACHE_BYTES: u64 = 1 << 20;

/// A batch that is complete: no more ops are added to it.
#[derive(Debug)]
pub struct SealedBatch {
    dir: PathBuf,
    rows: Arc<FileTable>,
    reads: Arc<FileTable>,
}

impl SealedBatch {
    /// Opens a sealed batch.
    pub fn open(dir: &Path) -> Result<Self, JobError> {
        let cache = Arc::new(sst::Cache::new(CACHE_BYTES));
        let rows = FileTable::open_file(rows_path(dir), 0, &cache).map_err(table_error)?;
        let reads = FileTable::open_file(reads_path(dir), 1, &cache).map_err(table_error)?;
        Ok(Self { dir: dir.to_owned(), rows, reads })
    }

    /// Writes the tables of a batch whose log is durable, and opens it.
    pub(crate) fn write(dir: &Path, overlay: &Overlay) -> Result<Self, JobError> {
        write_table(&reads_path(dir), |table| {
            for condition in overlay.base.conditions()? {
                if let Some((key, version)) = read_of(&condition) {
                    table.add(key, &version).map_err(table_error)?;
                }
            }
            Ok(())
        })?;
        write_table(&rows_path(dir), |table| {
            let mut changes = overlay.local.range(Bound::Unbounded, Bound::Unbounded);
            while let Some((key, change)) = changes.next()? {
                if !overlay.is_effective(&key, &change) {
                    continue;
                }
                table.add(&key, &change.encode()).map_err(table_error)?;
            }
            Ok(())
        })?;
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(access(dir))?;
        Self::open(dir)
    }

    /// Returns whether all records that the job says to have read have the same versions in a state, or are missing in it likewise.
    pub(crate) fn reads_are_current(&self, state: &dyn Reader) -> Result<bool, EngineError> {
        let mut reads = self.reads.scan(Bound::Unbounded);
        while reads.advance().map_err(table_error)? {
            let version = state.get(reads.key())?.map(|found| found.version.0.to_be_bytes().to_vec());
            if version.unwrap_or_default() != reads.value()[..] {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns a reader of the ops.
    pub(crate) fn ops(&self) -> Result<OpLogReader, LogDamage> {
        OpLogReader::open(&log_path(&self.dir))
    }

    /// Visits the ops in order, each with its index.
    pub fn for_each_op(&self, mut visit: impl FnMut(u64, &OpContext, &Op)) -> Result<(), LogDamage> {
        let mut ops = self.ops()?;
        let mut index = 0;
        while let Some(page) = ops.next_page()? {
            for record in &page {
                visit(index, &record.context, &record.op);
                index += 1;
            }
        }
        Ok(())
    }

    /// Returns the directory of the batch.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the number of rows that the batch claims to change.
    pub fn rows(&self) -> u64 {
        self.rows.entries()
    }

    /// Returns the table of the claimed changes.
    pub(crate) fn rows_table(&self) -> &Arc<FileTable> {
        &self.rows
    }

    /// Returns a cursor over the claimed changes.
    pub(crate) fn changes(&self) -> ClaimedChanges {
        ClaimedChanges { cursor: self.rows.scan(Bound::Unbounded), to: None }
    }

    /// Returns a cursor over the claimed changes of a range.
    pub(crate) fn changes_in(&self, range: &KeyRange) -> ClaimedChanges {
        ClaimedChanges::of(&self.rows, range)
    }

    /// Returns the claimed change of a key; `None` if the batch claims none.
    pub(crate) fn change(&self, key: &[u8]) -> Result<Option<Change>, EngineError> {
        let found = self.rows.get(key).map_err(table_error)?;
        Ok(found.map(|bytes| Change::decode(&bytes)).transpose()?)
    }
}

/// The changes that a batch claims to make, ascending.
pub(crate) struct ClaimedChanges {
    cursor: sst::Cursor<TableFile>,
    /// The end of the range, exclusive.
    to: Option<Vec<u8>>,
}

impl ClaimedChanges {
    /// Returns a cursor over the changes of a range.
    pub(crate) fn of(rows: &Arc<FileTable>, range: &KeyRange) -> Self {
        Self { cursor: rows.scan_part(Bound::Included(&range.from)), to: Some(range.to.clone()) }
    }

    /// Returns the next key and its claimed change; `None` at the end of the range.
    pub(crate) fn next(&mut self) -> Result<Option<(Vec<u8>, Change)>, EngineError> {
        let is_at_row = self.cursor.advance().map_err(table_error)?;
        if !is_at_row || self.to.as_ref().is_some_and(|to| self.cursor.key() >= to.as_slice()) {
            return Ok(None);
        }
        Ok(Some((self.cursor.key().to_vec(), Change::decode(self.cursor.value())?)))
    }
}

/// Returns the key of a condition on a version, and the version, which is empty if the record must be missing; `None` for other conditions.
fn read_of(condition: &Condition) -> Option<(&[u8], Vec<u8>)> {
    match condition {
        Condition::Version { key, version } => Some((key, version.0.to_be_bytes().to_vec())),
        Condition::Absent { key } => Some((key, Vec::new())),
        Condition::Present { .. } | Condition::RangeEmpty(_) => None,
    }
}

/// Writes a table durably, except for its name in the directory.
fn write_table(
    path: &Path,
    fill: impl FnOnce(&mut NewTableFile) -> Result<(), EngineError>,
) -> Result<(), JobError> {
    let new = path.with_extension("new");
    let mut table = NewTableFile::create(&new).map_err(access(&new))?;
    fill(&mut table)?;
    let (file, _) = table.finish().map_err(table_error)?;
    file.sync_all().map_err(access(&new))?;
    fs::rename(&new, path).map_err(access(path))
}

fn rows_path(dir: &Path) -> PathBuf {
    dir.join("rows.sst")
}

fn reads_path(dir: &Path) -> PathBuf {
    dir.join("reads.sst")
}
