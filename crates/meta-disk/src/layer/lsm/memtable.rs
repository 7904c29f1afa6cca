//! The memtable: the newest rows, which are in no table file yet.
//!
//! Invariants: the values of a key are ordered by their publication. A value that a snapshot or a cursor can see is not removed.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// The number of a publication. Publications are numbered from 1 when the tables are opened.
pub(super) type Version = u64;

/// Estimated memory of a value beyond its bytes.
const ENTRY_BYTES: usize = 160;

/// Entries that a cursor copies first: few, since most scans are short.
const FIRST_CHUNK: usize = 8;

/// Rows in memory. An empty value is a tombstone.
#[derive(Debug, Default)]
pub(super) struct Memtable {
    entries: RwLock<BTreeMap<Bytes, Values>>,
    len_bytes: AtomicUsize,
}

/// The newest value of a key, and older ones that readers may need.
#[derive(Debug)]
struct Values {
    newest: (Version, Bytes),
    /// Older values that a reader may still see, ascending.
    older: Vec<(Version, Bytes)>,
}

impl Values {
    /// Returns the newest value up to a version; `None` if all are newer.
    fn at(&self, version: Version) -> Option<&Bytes> {
        if self.newest.0 <= version {
            return Some(&self.newest.1);
        }
        let visible = self.older.partition_point(|(written, _)| *written <= version);
        self.older[..visible].last().map(|(_, value)| value)
    }

    /// Adds a newer value, and removes the values that no reader can see: those with a successor that the oldest reader sees. Returns
    /// the number of bytes removed.
    fn push(&mut self, version: Version, value: Bytes, oldest_reader: Version) -> usize {
        let previous = std::mem::replace(&mut self.newest, (version, value));
        self.older.push(previous);
        let visible = self.older.partition_point(|(written, _)| *written <= oldest_reader);
        let unseen = self.older.drain(..visible.saturating_sub(1));
        unseen.map(|(_, value)| value.len() + ENTRY_BYTES).sum()
    }
}

impl Memtable {
    /// Adds the rows of one publication, and calls `publish` before any reader sees one. Values that only readers before `oldest_reader`
    /// could see may be removed.
    pub(super) fn insert(
        &self,
        rows: impl IntoIterator<Item = (Bytes, Bytes)>,
        version: Version,
        oldest_reader: Version,
        publish: impl FnOnce(),
    ) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in rows {
            self.len_bytes.fetch_add(value.len() + ENTRY_BYTES, Ordering::Relaxed);
            let removed = match entries.get_mut(&key) {
                Some(values) => values.push(version, value, oldest_reader),
                None => {
                    self.len_bytes.fetch_add(key.len(), Ordering::Relaxed);
                    entries.insert(key, Values { newest: (version, value), older: Vec::new() });
                    0
                }
            };
            self.len_bytes.fetch_sub(removed, Ordering::Relaxed);
        }
        publish();
    }

    /// Returns the value of a key at a version, which may be a tombstone; `None` if the key has none.
    pub(super) fn get(&self, key: &[u8], version: Version) -> Option<Bytes> {
        self.read().get(key)?.at(version).cloned()
    }

    /// Returns the last key less than `before` that has a value at a version, and the value, which may be a tombstone.
    pub(super) fn last_before(&self, before: &[u8], version: Version) -> Option<(Bytes, Bytes)> {
        let entries = self.read();
        let range = entries.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(before)));
        range.rev().find_map(|(key, values)| Some((key.clone(), values.at(version)?.clone())))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.read().is_empty()
    }

    /// Returns the approximate memory in use, in bytes.
    pub(super) fn len_bytes(&self) -> usize {
        self.len_bytes.load(Ordering::Relaxed)
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Bytes, Values>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A memtable as a version sees it.
#[derive(Debug)]
pub(super) struct MemtableAt {
    memtable: Arc<Memtable>,
    version: Version,
}

/// Iterates over the entries of a memtable at a version.
pub(super) type MemtableCursor = sst::ChunkCursor<MemtableAt>;

/// Returns a cursor over the entries of a memtable at a version.
pub(super) fn scan(memtable: &Arc<Memtable>, version: Version, from: Bound<&[u8]>) -> MemtableCursor {
    let source = MemtableAt { memtable: Arc::clone(memtable), version };
    MemtableCursor::new(source, from.map(Bytes::copy_from_slice), FIRST_CHUNK)
}

impl sst::ChunkSource for MemtableAt {
    fn copy_chunk(&self, from: Bound<&[u8]>, limit: usize, chunk: &mut Vec<(Bytes, Bytes)>) {
        let entries = self.memtable.read();
        let range = entries.range::<[u8], _>((from, Bound::Unbounded));
        let at_version = |values: &Values| values.at(self.version).cloned();
        let visible = range.filter_map(|(key, values)| Some((key.clone(), at_version(values)?)));
        chunk.extend(visible.take(limit));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str, value: &str) -> (Bytes, Bytes) {
        (Bytes::copy_from_slice(key.as_bytes()), Bytes::copy_from_slice(value.as_bytes()))
    }

    #[test]
    fn values_that_no_reader_can_see_are_removed() {
        let memtable = Memtable::default();
        for version in 1..=1000 {
            memtable.insert([row("k", &version.to_string())], version, version - 1, || ());
        }
        assert!(memtable.len_bytes() < 4 * (ENTRY_BYTES + 8), "{} bytes", memtable.len_bytes());
        assert_eq!(memtable.get(b"k", 999).unwrap(), "999");
        assert_eq!(memtable.get(b"k", 1000).unwrap(), "1000");
    }

    #[test]
    fn a_reader_keeps_the_values_that_it_can_see() {
        let memtable = Memtable::default();
        memtable.insert([row("k", "old")], 5, 0, || ());
        for version in 7..=100 {
            memtable.insert([row("k", &version.to_string())], version, 6, || ());
        }
        assert_eq!(memtable.get(b"k", 6).unwrap(), "old");
        assert_eq!(memtable.get(b"k", 4), None);
        assert_eq!(memtable.last_before(b"l", 6), Some(row("k", "old")));
        assert_eq!(memtable.last_before(b"k", 6), None);
    }
}
