//! The index: all entries by key, in memory and in tables on the device. It is an LSM tree.
//!
//! Owns the memtables and the tables, and does not interpret entries. `commit` and `open` insert, `checkpoint` writes memtables as
//! tables, `compact` merges tables.
//!
//! Invariants: the newest value of a key is in the first of memtable, frozen memtable and tables (newest first) that has the key. An
//! empty value is a deletion. A published view never changes, except that entries are inserted into its memtable.

mod memtable;
mod salvage;
mod table;

pub(crate) use table::{IndexTable, TableSink, TableSource};

use crate::error::{Error, Result};
use crate::policy::IndexSize;
use crate::verdict::Verdict;
use bytes::Bytes;
pub(crate) use memtable::ENTRY_BYTES;
use memtable::{Memtable, MemtableCursor, scan};
pub(crate) use salvage::{Losses, SalvageCursor};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use table::DeviceCause;

/// A published state of the index: its memtables and tables.
#[derive(Debug, Clone, Default)]
pub(crate) struct View {
    memtable: Arc<Memtable>,
    /// The memtable that a checkpoint is writing.
    frozen: Option<Arc<Memtable>>,
    /// The tables, newest first.
    pub(crate) tables: Vec<Arc<IndexTable>>,
}

/// The index of a drive.
#[derive(Debug)]
pub(crate) struct Index {
    view: RwLock<Arc<View>>,
    cache: Arc<sst::Cache>,
    /// The next id of a table, by which the cache knows its blocks.
    next_table: AtomicU64,
}

impl Index {
    /// Makes an index of tables, which are given newest first and have ids below `next_table`.
    pub(crate) fn new(tables: Vec<Arc<IndexTable>>, cache: Arc<sst::Cache>, next_table: u64) -> Self {
        Self::of_view(View { tables, ..View::default() }, cache, next_table)
    }

    fn of_view(view: View, cache: Arc<sst::Cache>, next_table: u64) -> Self {
        Self { view: RwLock::new(Arc::new(view)), cache, next_table: AtomicU64::new(next_table) }
    }

    /// Opens a table that was just written.
    pub(crate) fn open_table(&self, source: TableSource) -> Result<Arc<IndexTable>> {
        let id = self.next_table.fetch_add(1, Ordering::Relaxed);
        IndexTable::open(source, id, self.cache.clone()).map(Arc::new).map_err(table_error)
    }

    pub(crate) fn view(&self) -> Arc<View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the current value of a key; `None` if it has none or was deleted.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.view().get(key)
    }

    /// Returns the value of a key if that needs no read from the device. The outer `None` means unknown.
    pub(crate) fn get_in_memory(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let view = self.view();
        let value = view.in_memory(key).or_else(|| view.in_cached_blocks(key))?;
        Some((!value.is_empty()).then_some(value))
    }

    /// Sets the value of a key; an empty value deletes the entry.
    pub(crate) fn insert(&self, key: Vec<u8>, value: Vec<u8>) {
        // Drops spare capacity.
        let [key, value] = [key, value].map(|bytes| Bytes::from(bytes.into_boxed_slice()));
        self.view().memtable.insert(key, value);
    }

    /// Returns the lengths of the tables and memtables, for the admission policy.
    pub(crate) fn size(&self) -> IndexSize {
        let view = self.view();
        IndexSize {
            tables_bytes: view.tables.iter().map(|table| table.source().len()).sum(),
            memtable_bytes: view.memtable.len_bytes() as u64,
            frozen_bytes: view.frozen_bytes(),
        }
    }

    /// Returns the approximate memory of the whole index: memtables, cached blocks, and what each open table keeps.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let view = self.view();
        let tables: usize = view.tables.iter().map(|table| table.kept_bytes()).sum();
        view.memtable.len_bytes() as u64 + view.frozen_bytes() + self.cache.len_bytes() + tables as u64
    }

    /// Iterates over the entries with a prefix, from a key on.
    pub(crate) fn scan(&self, from: Bound<&[u8]>, prefix: &[u8]) -> Result<Scan> {
        Ok(self.scan_by(from, prefix, |table| Cursor::Table(table.scan_part(from))))
    }

    /// Iterates over all entries from a key on, skips unreadable parts of tables, and adds these parts to `losses`.
    pub(crate) fn scan_readable(&self, from: Bound<&[u8]>, losses: &Losses) -> Scan {
        self.scan_by(from, &[], |table| {
            Cursor::Salvage(SalvageCursor::new(table.clone(), from, losses.clone()))
        })
    }

    /// Returns a scan of the entries with a prefix, from a bound on. `cursor_of` opens the cursor of a table.
    fn scan_by(
        &self,
        from: Bound<&[u8]>,
        prefix: &[u8],
        cursor_of: impl Fn(&Arc<IndexTable>) -> Cursor,
    ) -> Scan {
        let view = self.view();
        let owned = from.map(Bytes::copy_from_slice);
        let memories = std::iter::once(&view.memtable).chain(&view.frozen);
        let memories = memories.map(|memory| Cursor::Memtable(scan(memory, owned.clone())));
        let merge = sst::Merge::new(memories.chain(view.tables.iter().map(cursor_of)));
        Scan { merge, prefix: prefix.to_vec() }
    }

    /// Rotates the memtable: later inserts go to a new one, and the old one is written as a table. No inserts may run at the same time.
    pub(crate) fn rotate_memtable(&self) {
        self.publish(|view| {
            assert!(view.frozen.is_none(), "only one checkpoint runs at a time");
            View {
                memtable: Arc::default(),
                frozen: Some(view.memtable.clone()),
                tables: view.tables.clone(),
            }
        });
    }

    /// Iterates over the frozen entries and those of these tables, deletions included.
    pub(crate) fn scan_frozen_and(&self, tables: &[Arc<IndexTable>]) -> sst::Merge<Cursor> {
        let view = self.view();
        let memory = |frozen: &Arc<Memtable>| scan(frozen, Bound::Unbounded);
        let frozen = view.frozen.iter().map(|frozen| Cursor::Memtable(memory(frozen)));
        let tables = tables.iter().map(|table| Cursor::Table(table.scan(Bound::Unbounded)));
        sst::Merge::new(frozen.chain(tables))
    }

    /// Replaces the frozen memtable and the tables merged with it by the new table, or by none if it would be empty.
    pub(crate) fn install_flushed(&self, old: &[Arc<IndexTable>], new: Option<Arc<IndexTable>>) {
        self.publish(|view| {
            let tables = new.into_iter().chain(view.tables_without(old)).collect();
            View { memtable: view.memtable.clone(), frozen: None, tables }
        });
    }

    /// Undoes a rotation: the frozen entries return to the memtable. No inserts may run at the same time.
    pub(crate) fn undo_rotation(&self) {
        self.publish(|view| {
            if let Some(frozen) = &view.frozen {
                view.memtable.add_missing_from(frozen);
            }
            View { frozen: None, ..view.clone() }
        });
    }

    /// Replaces adjacent tables by one table, or by none.
    pub(crate) fn replace(&self, old: &[Arc<IndexTable>], new: Option<Arc<IndexTable>>) {
        self.publish(|view| {
            let at = view.tables.iter().position(|table| is_among(table, old)).unwrap_or(0);
            let mut tables: Vec<_> = view.tables_without(old).collect();
            tables.splice(at..at, new);
            View { tables, ..view.clone() }
        });
    }

    /// Replaces the view, so that reads from now on see the new one.
    fn publish(&self, next: impl FnOnce(&View) -> View) {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        let next = Arc::new(next(&view));
        let old = std::mem::replace(&mut *view, next);
        // Released first: the last reference to a table locks the space.
        drop(view);
        drop(old);
    }
}

fn is_among(table: &Arc<IndexTable>, tables: &[Arc<IndexTable>]) -> bool {
    tables.iter().any(|other| Arc::ptr_eq(other, table))
}

impl View {
    /// Returns the tables of the view other than some.
    fn tables_without(&self, old: &[Arc<IndexTable>]) -> impl Iterator<Item = Arc<IndexTable>> {
        self.tables.iter().filter(move |table| !is_among(table, old)).cloned()
    }

    fn frozen_bytes(&self) -> u64 {
        self.frozen.as_ref().map_or(0, |frozen| frozen.len_bytes() as u64)
    }

    /// Returns the value of a key in the memtables, newest first; `None` if only tables can have it.
    fn in_memory(&self, key: &[u8]) -> Option<Bytes> {
        self.memtable.get(key).or_else(|| self.frozen.as_ref()?.get(key))
    }

    /// Returns the value according to the tables, empty if there is none, or `None` if that needs a read from the
    /// device. A cached block that is damaged counts as unread, as only readers report damage.
    fn in_cached_blocks(&self, key: &[u8]) -> Option<Bytes> {
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
            if let Some(value) = table.get(key).map_err(table_error)? {
                return Ok((!value.is_empty()).then_some(value));
            }
        }
        Ok(None)
    }
}

/// Reads all of a table, and returns whether it is right, damaged or unreadable.
pub(crate) fn verify(table: &IndexTable) -> Verdict {
    match Verdict::of(table.verify().map_err(table_error)) {
        Ok(verdict) => verdict,
        // An error of another kind keeps the table from being read as well.
        Err(error) => Verdict::Unreadable(error),
    }
}

/// Converts an error of a table.
pub(crate) fn table_error(error: sst::Error) -> Error {
    match error {
        sst::Error::Corrupt { what, at } => Error::DamagedIndex { what, at },
        sst::Error::Io(error) => {
            match error.get_ref().and_then(|inner| inner.downcast_ref::<DeviceCause>()) {
                Some(DeviceCause { at, is_read: true, reason }) => {
                    Error::UnreadableIndex { at: *at, reason: reason.clone() }
                }
                Some(DeviceCause { at, reason, .. }) => Error::Device { at: *at, reason: reason.clone() },
                None => Error::Device { at: 0, reason: error.to_string() },
            }
        }
        error => Error::Unsuitable(error.to_string()),
    }
}

/// A cursor over entries in memory or in a table.
#[derive(Debug)]
pub(crate) enum Cursor {
    Memtable(MemtableCursor),
    Table(sst::Cursor<TableSource>),
    /// Skips unreadable parts of the table.
    Salvage(SalvageCursor),
}

impl sst::Sorted for Cursor {
    fn advance(&mut self) -> sst::Result<bool> {
        match self {
            Self::Memtable(cursor) => cursor.advance(),
            Self::Table(cursor) => cursor.advance(),
            Self::Salvage(cursor) => cursor.advance(),
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            Self::Memtable(cursor) => cursor.key(),
            Self::Table(cursor) => cursor.key(),
            Self::Salvage(cursor) => cursor.key(),
        }
    }

    fn value(&self) -> &Bytes {
        match self {
            Self::Memtable(cursor) => cursor.value(),
            Self::Table(cursor) => cursor.value(),
            Self::Salvage(cursor) => cursor.value(),
        }
    }
}

/// Iterates over entries in key order, without deleted ones.
#[derive(Debug)]
pub(crate) struct Scan {
    merge: sst::Merge<Cursor>,
    prefix: Vec<u8>,
}

impl Scan {
    /// Returns the next entry; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(&[u8], &Bytes)>> {
        loop {
            if !self.merge.advance().map_err(table_error)? || !self.merge.key().starts_with(&self.prefix) {
                return Ok(None);
            }
            if !self.merge.value().is_empty() {
                break;
            }
        }
        Ok(Some((self.merge.key(), self.merge.value())))
    }
}
