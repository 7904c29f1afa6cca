//! The memtable: index entries that are in no table yet.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Memory of an entry beyond its key and value, in bytes, estimated.
pub(crate) const ENTRY_BYTES: usize = 128;

/// Entries that a cursor copies at a time.
const CHUNK: usize = 256;

/// Entries in memory, newer than all tables. An empty value is a deletion.
#[derive(Debug, Default)]
pub(crate) struct Memtable {
    entries: RwLock<BTreeMap<Bytes, Bytes>>,
    len_bytes: AtomicUsize,
}

impl Memtable {
    pub(crate) fn insert(&self, key: Bytes, value: Bytes) {
        self.len_bytes.fetch_add(key.len() + value.len() + ENTRY_BYTES, Ordering::Relaxed);
        self.entries.write().unwrap_or_else(PoisonError::into_inner).insert(key, value);
    }

    /// Adds the entries of an older memtable whose keys are not in this one.
    pub(crate) fn add_missing_from(&self, older: &Self) {
        let mut more_bytes = 0;
        let older = older.entries.read().unwrap_or_else(PoisonError::into_inner);
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in older.iter() {
            entries.entry(key.clone()).or_insert_with(|| {
                more_bytes += key.len() + value.len() + ENTRY_BYTES;
                value.clone()
            });
        }
        self.len_bytes.fetch_add(more_bytes, Ordering::Relaxed);
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Bytes> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Returns the approximate memory in use. Overwritten values count until the memtable is dropped.
    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes.load(Ordering::Relaxed)
    }
}

impl sst::ChunkSource for Memtable {
    fn copy_chunk(&self, from: Bound<&[u8]>, limit: usize, chunk: &mut Vec<(Bytes, Bytes)>) {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let range = entries.range::<[u8], _>((from, Bound::Unbounded));
        chunk.extend(range.take(limit).map(|(key, value)| (key.clone(), value.clone())));
    }
}

/// A cursor over the entries of a memtable.
pub(crate) type MemtableCursor = sst::ChunkCursor<Arc<Memtable>>;

/// Returns a cursor over the entries of a memtable.
pub(crate) fn scan(memtable: &Arc<Memtable>, from: Bound<Bytes>) -> MemtableCursor {
    MemtableCursor::new(Arc::clone(memtable), from, CHUNK)
}
