//! The table: an ordered map with a running count of what it costs.

use crate::engine::{KeyRange, Rows, Seqno, Value, Versioned};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// What an entry takes in the tree beside the bytes it points to: 40 bytes in nodes that keys in ascending order leave
/// half full. With it a million imported files count 408 bytes each; the process grew by 414 (`bench/placement`).
const NODE_BYTES: u64 = 84;

/// Keys with their records and the commits that wrote these.
type Records = BTreeMap<Box<[u8]>, (Value, Seqno)>;

/// Cloning it is cheap; the next change of either then copies the map.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    rows: Arc<Records>,
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
        if is_void(from, to) {
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
        if is_void(from, to) {
            return None;
        }
        let (key, (value, version)) = self.rows.range::<[u8], _>((from, to)).next_back()?;
        Some((key.to_vec(), Versioned { value: value.clone(), version: *version }))
    }

    pub(super) fn keys<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = &'a [u8]> {
        let (from, to) = range.bounds();
        let rows = (!is_void(from, to)).then(|| self.rows.range::<[u8], _>((from, to)));
        rows.into_iter().flatten().map(|(key, _)| &**key)
    }

    pub(super) fn put(&mut self, key: Vec<u8>, value: &Value, version: Seqno) {
        self.bytes += cost(&key, value);
        if let Some((old, _)) = self.rows.get(key.as_slice()) {
            self.bytes -= cost(&key, old);
        }
        Arc::make_mut(&mut self.rows).insert(key.into(), (value.clone(), version));
    }

    pub(super) fn delete(&mut self, key: &[u8]) {
        if let Some((old, _)) = Arc::make_mut(&mut self.rows).remove(key) {
            self.bytes -= cost(key, &old);
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.bytes
    }
}

/// `BTreeMap::range` panics on such bounds; here they hold no row.
fn is_void(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
    }
}

fn cost(key: &[u8], value: &[u8]) -> u64 {
    NODE_BYTES + allocation(key.len()) + allocation(value.len() + 16)
}

/// What the allocator takes for so many bytes: 8 of its own, in steps of 16.
fn allocation(len: usize) -> u64 {
    (len as u64 + 8).next_multiple_of(16).max(32)
}
