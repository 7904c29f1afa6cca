//! The index: every entry by its key, in memory and in tables on the device.
//!
//! Owns what is in memory and the tables; refuses to know what an entry means. `commit` and `open` insert, `checkpoint`
//! makes tables of what is in memory, `compact` makes one table of several.
//!
//! Invariants: an entry's newest value is in the first of memory, frozen memory and tables (newest first) that has one;
//! an empty value is a deletion; a published view never changes but by what is inserted into its memory.

mod memory;
mod table;
mod whole;

pub(crate) use table::{IndexTable, TableSink, TableSource};

use crate::error::{Error, Result};
use bytes::Bytes;
pub(crate) use memory::ENTRY_BYTES;
use memory::{Memory, MemoryCursor};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock};
use table::OfDevice;
pub(crate) use whole::{Losses, WholeCursor};

/// Everything the index knows at a moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    memory: Arc<Memory>,
    /// What a table is being made of.
    frozen: Option<Arc<Memory>>,
    /// The newest first.
    pub(crate) tables: Vec<Arc<IndexTable>>,
}

/// All entries.
#[derive(Debug)]
pub(crate) struct Index {
    view: RwLock<Arc<View>>,
    cache: Arc<sst::Cache>,
}

impl Index {
    pub(crate) fn new(tables: Vec<Arc<IndexTable>>, cache: Arc<sst::Cache>) -> Self {
        Self { view: RwLock::new(Arc::new(View { tables, ..View::default() })), cache }
    }

    pub(crate) fn cache(&self) -> &Arc<sst::Cache> {
        &self.cache
    }

    pub(crate) fn view(&self) -> Arc<View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The entry's value now.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.view().get(key)
    }

    /// The entry's value, if that takes no look at the device.
    pub(crate) fn get_in_memory(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let view = self.view();
        let value = view.in_memory(key).or_else(|| view.in_kept_parts(key))?;
        Some((!value.is_empty()).then_some(value))
    }

    /// From now on the entry has this value; an empty one removes it.
    pub(crate) fn insert(&self, key: Vec<u8>, value: Vec<u8>) {
        // Without what they have room for beside.
        let [key, value] = [key, value].map(|bytes| Bytes::from(bytes.into_boxed_slice()));
        self.view().memory.insert(key, value);
    }

    /// About how much memory the entries take that are in no table.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.view().memory.len_bytes()
    }

    /// About how much memory all of it takes: entries, what is kept of tables, and what each table keeps.
    pub(crate) fn len_bytes(&self) -> usize {
        let view = self.view();
        let tables: usize = view.tables.iter().map(|table| table.kept_bytes()).sum();
        self.memory_bytes() + self.frozen_bytes() as usize + self.cache.len_bytes() as usize + tables
    }

    /// Goes through all entries from a key on that begin so.
    pub(crate) fn scan(&self, from: Bound<&[u8]>, prefix: &[u8]) -> Result<Scan> {
        Ok(self.scan_by(from, prefix, |table| Cursor::Table(table.scan_part(from))))
    }

    /// As [`scan`](Self::scan), past what of the tables cannot be read, which `losses` is told.
    pub(crate) fn scan_whole(&self, from: Bound<&[u8]>, losses: &Losses) -> Scan {
        self.scan_by(from, &[], |table| Cursor::Whole(WholeCursor::new(table.clone(), from, losses.clone())))
    }

    fn scan_by(&self, from: Bound<&[u8]>, prefix: &[u8], of: impl Fn(&Arc<IndexTable>) -> Cursor) -> Scan {
        let view = self.view();
        let owned = from.map(Bytes::copy_from_slice);
        let memories = std::iter::once(&view.memory).chain(&view.frozen);
        let memories =
            memories.map(|memory| Cursor::Memory(MemoryCursor::new(memory.clone(), owned.clone())));
        let merge = sst::Merge::new(memories.chain(view.tables.iter().map(of)));
        Scan { merge, prefix: prefix.to_vec() }
    }

    /// What is inserted from now on is not in the table that is to be made. Nobody inserts at the same time.
    pub(crate) fn freeze(&self) {
        self.publish(|view| {
            assert!(view.frozen.is_none(), "one table is made at a time");
            View { memory: Arc::default(), frozen: Some(view.memory.clone()), tables: view.tables.clone() }
        });
    }

    /// The frozen entries and those of these tables, deletions included.
    pub(crate) fn frozen_and(&self, tables: &[Arc<IndexTable>]) -> sst::Merge<Cursor> {
        let view = self.view();
        let memory = |frozen: &Arc<Memory>| MemoryCursor::new(frozen.clone(), Bound::Unbounded);
        let frozen = view.frozen.iter().map(|frozen| Cursor::Memory(memory(frozen)));
        let tables = tables.iter().map(|table| Cursor::Table(table.scan(Bound::Unbounded)));
        sst::Merge::new(frozen.chain(tables))
    }

    /// About how many bytes a table of the frozen entries may take.
    pub(crate) fn frozen_bytes(&self) -> u64 {
        self.view().frozen.as_ref().map_or(0, |frozen| frozen.len_bytes() as u64)
    }

    /// The frozen entries and those of these tables are in this one from now on; in none if there were none.
    pub(crate) fn thaw(&self, old: &[Arc<IndexTable>], new: Option<Arc<IndexTable>>) {
        self.publish(|view| {
            let tables = new.into_iter().chain(view.tables_without(old)).collect();
            View { memory: view.memory.clone(), frozen: None, tables }
        });
    }

    /// No table can be made of the frozen entries now: they are as if they had not been frozen. Nobody inserts at the same time.
    pub(crate) fn unfreeze(&self) {
        self.publish(|view| {
            if let Some(frozen) = &view.frozen {
                view.memory.fill(frozen);
            }
            View { frozen: None, ..view.clone() }
        });
    }

    /// One table, or none, is there instead of several that follow each other.
    pub(crate) fn replace(&self, old: &[Arc<IndexTable>], new: Option<Arc<IndexTable>>) {
        self.publish(|view| {
            let at = view.tables.iter().position(|table| is_among(table, old)).unwrap_or(0);
            let mut tables: Vec<_> = view.tables_without(old).collect();
            tables.splice(at..at, new);
            View { tables, ..view.clone() }
        });
    }

    fn publish(&self, next: impl FnOnce(&View) -> View) {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        *view = Arc::new(next(&view));
    }
}

fn is_among(table: &Arc<IndexTable>, tables: &[Arc<IndexTable>]) -> bool {
    tables.iter().any(|other| Arc::ptr_eq(other, table))
}

impl View {
    fn tables_without(&self, old: &[Arc<IndexTable>]) -> impl Iterator<Item = Arc<IndexTable>> {
        self.tables.iter().filter(move |table| !is_among(table, old)).cloned()
    }

    fn in_memory(&self, key: &[u8]) -> Option<Bytes> {
        self.memory.get(key).or_else(|| self.frozen.as_ref()?.get(key))
    }

    /// What the tables have, empty if it is nothing, where the parts of them that say so are in memory. Damage is for
    /// those who read.
    fn in_kept_parts(&self, key: &[u8]) -> Option<Bytes> {
        for table in &self.tables {
            if let Some(value) = table.get_kept(key).ok()?? {
                return Some(value);
            }
        }
        Some(Bytes::new())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        if let Some(value) = self.in_memory(key) {
            return Ok((!value.is_empty()).then_some(value));
        }
        for table in &self.tables {
            if let Some(value) = table.get(key).map_err(of_table)? {
                return Ok((!value.is_empty()).then_some(value));
            }
        }
        Ok(None)
    }
}

/// An error of a table as one of the drive.
pub(crate) fn of_table(error: sst::Error) -> Error {
    match error {
        sst::Error::Corrupt { what, at } => Error::DamagedIndex { what, at },
        sst::Error::Io(error) => match error.get_ref().and_then(|inner| inner.downcast_ref::<OfDevice>()) {
            Some(OfDevice { at, is_read: true, reason }) => {
                Error::UnreadIndex { at: *at, reason: reason.clone() }
            }
            Some(OfDevice { at, reason, .. }) => Error::Device { at: *at, reason: reason.clone() },
            None => Error::Device { at: 0, reason: error.to_string() },
        },
        error => Error::Unfit(error.to_string()),
    }
}

/// Goes through entries in memory or in a table.
#[derive(Debug)]
pub(crate) enum Cursor {
    Memory(MemoryCursor),
    Table(sst::Cursor<TableSource>),
    /// Past what of the table cannot be read.
    Whole(WholeCursor),
}

impl sst::Sorted for Cursor {
    fn advance(&mut self) -> sst::Result<bool> {
        match self {
            Self::Memory(cursor) => cursor.advance(),
            Self::Table(cursor) => cursor.advance(),
            Self::Whole(cursor) => cursor.advance(),
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            Self::Memory(cursor) => cursor.key(),
            Self::Table(cursor) => cursor.key(),
            Self::Whole(cursor) => cursor.key(),
        }
    }

    fn value(&self) -> &Bytes {
        match self {
            Self::Memory(cursor) => cursor.value(),
            Self::Table(cursor) => cursor.value(),
            Self::Whole(cursor) => cursor.value(),
        }
    }
}

/// Entries in order, without what was deleted.
#[derive(Debug)]
pub(crate) struct Scan {
    merge: sst::Merge<Cursor>,
    prefix: Vec<u8>,
}

impl Scan {
    /// The next entry; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(&[u8], &Bytes)>> {
        loop {
            if !self.merge.advance().map_err(of_table)? || !self.merge.key().starts_with(&self.prefix) {
                return Ok(None);
            }
            if !self.merge.value().is_empty() {
                break;
            }
        }
        Ok(Some((self.merge.key(), self.merge.value())))
    }
}
