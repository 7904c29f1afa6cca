//! Salvage: reads the intact entries of a table that is damaged in part.

use super::{Index, IndexTable, Memtable, TableSource, View, table_error, verify};
use crate::format::IndexKey;
use bytes::Bytes;
use sst::Sorted as _;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

/// Unreadable parts of tables, one line each. Clones share the list.
#[derive(Debug, Clone, Default)]
pub(crate) struct Losses(Arc<Mutex<BTreeSet<String>>>);

impl Losses {
    /// Adds a line about something that was lost.
    fn add(&self, line: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(line);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Returns the lines, without duplicates.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// A cursor over the readable entries of a table.
#[derive(Debug)]
pub(crate) struct SalvageCursor {
    table: Arc<IndexTable>,
    cursor: sst::Cursor<TableSource>,
    /// The last key returned, or the start of the iteration.
    last: Vec<u8>,
    losses: Losses,
}

impl SalvageCursor {
    pub(crate) fn new(table: Arc<IndexTable>, from: Bound<&[u8]>, losses: Losses) -> Self {
        let last = match from {
            Bound::Included(key) | Bound::Excluded(key) => key.to_vec(),
            Bound::Unbounded => Vec::new(),
        };
        Self { cursor: table.scan_part(from), table, last, losses }
    }
}

impl sst::Sorted for SalvageCursor {
    fn advance(&mut self) -> sst::Result<bool> {
        loop {
            match self.cursor.advance() {
                Ok(true) => {
                    self.last.clear();
                    self.last.extend_from_slice(self.cursor.key());
                    return Ok(true);
                }
                Ok(false) => return Ok(false),
                Err(error) => {
                    let resumed = self.table.resume_after(&self.last);
                    let until = match &resumed {
                        Some(bound) => format!("up to {}", name_of(bound)),
                        None => "up to the end of the table".to_owned(),
                    };
                    self.losses.add(format!("{}; the entries {until} are unknown", table_error(error)));
                    let Some(bound) = resumed else { return Ok(false) };
                    self.cursor = self.table.scan_part(Bound::Included(&bound));
                }
            }
        }
    }

    fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    fn value(&self) -> &Bytes {
        self.cursor.value()
    }
}

/// Returns how messages name an entry.
fn name_of(key: &[u8]) -> String {
    match IndexKey(key.to_vec()).bucket_and_key() {
        Some((_, object)) => format!("'{}'", String::from_utf8_lossy(&object)),
        None => format!("the entry '{}'", key.escape_ascii()),
    }
}

impl Index {
    /// Makes an index of the readable entries of tables, which are given newest first. Entries of damaged tables are loaded into memory,
    /// so that no lookup reads a damaged block. Adds the unreadable parts to `losses`.
    pub(crate) fn salvage(
        tables: Vec<Arc<IndexTable>>,
        cache: Arc<sst::Cache>,
        next_table: u64,
        losses: &mut Vec<String>,
    ) -> Self {
        let memtable = Memtable::default();
        let mut whole: Vec<Arc<IndexTable>> = Vec::new();
        for table in tables {
            if verify(&table).is_right() {
                whole.push(table);
                continue;
            }
            let table_losses = Losses::default();
            let mut cursor = SalvageCursor::new(table.clone(), Bound::Unbounded, table_losses.clone());
            let mut read = 0;
            while let Ok(true) = cursor.advance() {
                read += 1;
                let (key, value) = (cursor.key(), cursor.value());
                let is_newer = |table: &Arc<IndexTable>| matches!(table.get(key), Ok(Some(_)));
                if memtable.get(key).is_none() && !whole.iter().any(is_newer) {
                    memtable.insert(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
                }
            }
            losses.extend(table_losses.lines());
            losses.push(format!(
                "a table of the index is damaged: {read} of {} entries are readable; objects may be missing, or older than stored last",
                table.entries()
            ));
        }
        let view = View { memtable: Arc::new(memtable), frozen: None, tables: whole };
        Self::of_view(view, cache, next_table)
    }
}
