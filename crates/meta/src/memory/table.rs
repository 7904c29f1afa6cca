//! The table of the in-memory engine: an ordered map that keeps count of its memory.

use crate::record::{KeyRange, Rows, Seqno, Value, Versioned};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Memory that an entry takes in the tree's nodes, besides the bytes it points to: 40 bytes, in nodes that are half full
/// after keys were inserted in ascending order. With this constant a million imported files count 408 bytes each; the process
/// grew by 414 bytes each (`bench/placement`).
const NODE_BYTES: u64 = 84;

/// Records by their keys, each with the commit that wrote it.
type Records = BTreeMap<Box<[u8]>, (Value, Seqno)>;

/// An ordered map with versions. Cloning is cheap; the next change of the table or its clone copies the map.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    rows: Arc<Records>,
    /// Approximate memory of the rows, in bytes.
    bytes: u64,
}

impl Table {
    pub(super) fn get(&self, key: &[u8]) -> Option<Versioned> {
        self.rows.get(key).map(|(value, version)| Versioned { value: value.clone(), version: *version })
    }

    pub(super) fn version(&self, key: &[u8]) -> Option<Seqno> {
        self.rows.get(key).map(|(_, version)| *version)
    }

    pub(super) fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Rows {
        if is_empty_range(from, to) {
            return Vec::new();
        }
        let rows = self.rows.range::<[u8], _>((from, to)).take(limit);
        rows.map(|(key, (value, version))| {
            (key.to_vec(), Versioned { value: value.clone(), version: *version })
        })
        .collect()
    }

    pub(super) fn last(&self, range: &KeyRange) -> Option<(Vec<u8>, Versioned)> {
        let (from, to) = range.bounds();
        if is_empty_range(from, to) {
            return None;
        }
        let (key, (value, version)) = self.rows.range::<[u8], _>((from, to)).next_back()?;
        Some((key.to_vec(), Versioned { value: value.clone(), version: *version }))
    }

    pub(super) fn keys<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = &'a [u8]> {
        let (from, to) = range.bounds();
        let rows = (!is_empty_range(from, to)).then(|| self.rows.range::<[u8], _>((from, to)));
        rows.into_iter().flatten().map(|(key, _)| &**key)
    }

    pub(super) fn put(&mut self, key: Vec<u8>, value: &Value, version: Seqno) {
        self.bytes += entry_bytes(&key, value);
        if let Some((old, _)) = self.rows.get(key.as_slice()) {
            self.bytes -= entry_bytes(&key, old);
        }
        Arc::make_mut(&mut self.rows).insert(key.into(), (value.clone(), version));
    }

    pub(super) fn delete(&mut self, key: &[u8]) {
        if let Some((old, _)) = Arc::make_mut(&mut self.rows).remove(key) {
            self.bytes -= entry_bytes(key, &old);
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.bytes
    }
}

/// Returns whether bounds are reversed or exclude all keys. `BTreeMap::range` panics on reversed bounds; here they hold no rows.
fn is_empty_range(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
    }
}

fn entry_bytes(key: &[u8], value: &[u8]) -> u64 {
    NODE_BYTES + allocated_bytes(key.len()) + allocated_bytes(value.len() + 16)
}

/// Returns the memory that the allocator uses for `len` bytes: 8 bytes of its own, rounded up to a multiple of 16.
fn allocated_bytes(len: usize) -> u64 {
    (len as u64 + 8).next_multiple_of(16).max(32)
}
