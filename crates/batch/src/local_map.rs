//! The local log-structured map: the changes of rows that a private namespace has made.
//!
//! The newest changes are in memory. When they exceed a limit they become a temporary table file, and table files of similar size are merged.
//!
//! Invariants: the newest change of a key is in memory or else in the newest table that has the key; merges stay in memory, because the next
//! merge adds to them; a file is deleted with its table.

use crate::change::Change;
use crate::table_error::{io_error, table_error};
use bytes::Bytes;
use meta::{EngineError, KeyRange};
use sst::{FileTable, NewTableFile};
use std::collections::{BTreeMap, btree_map};
use std::mem;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Memory of an entry beyond its bytes.
const ENTRY_BYTES: usize = 64;

/// Cache of blocks of table files, in bytes.
const CACHE_BYTES: u64 = 32 << 20;

/// Extension of temporary table files.
pub(crate) const TEMPORARY: &str = "tmp";

/// Changes by key.
#[derive(Debug)]
pub(crate) struct LocalMap {
    /// The families of records that have changes, by the first byte of their keys. Most ops look for records of families that have none.
    families: [bool; 256],
    recent: BTreeMap<Vec<u8>, Change>,
    recent_bytes: usize,
    /// Older changes, newest first.
    tables: Vec<Arc<FileTable>>,
    dir: PathBuf,
    memory_bytes_max: usize,
    cache: Arc<sst::Cache>,
    next_table: u64,
}

impl LocalMap {
    /// Creates an empty map, whose table files are in `dir`.
    pub(crate) fn new(dir: &Path, memory_bytes_max: usize) -> Self {
        Self {
            families: [false; 256],
            recent: BTreeMap::new(),
            recent_bytes: 0,
            tables: Vec::new(),
            dir: dir.to_owned(),
            memory_bytes_max,
            cache: Arc::new(sst::Cache::new(CACHE_BYTES)),
            next_table: 0,
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Change>, EngineError> {
        if !self.families[family(key)] {
            return Ok(None);
        }
        if let Some(change) = self.recent.get(key) {
            return Ok(Some(change.clone()));
        }
        for table in &self.tables {
            if let Some(bytes) = table.get(key).map_err(table_error)? {
                return Ok(Some(Change::decode(&bytes)?));
            }
        }
        Ok(None)
    }

    pub(crate) fn insert(&mut self, key: Vec<u8>, change: Change) {
        self.families[family(&key)] = true;
        self.recent_bytes += key.len() + change.len_bytes() + ENTRY_BYTES;
        self.recent.insert(key, change);
    }

    /// Writes the changes in memory to a table file if they exceed the limit.
    pub(crate) fn spill_if_full(&mut self) -> Result<(), EngineError> {
        if self.recent_bytes < self.memory_bytes_max {
            return Ok(());
        }
        let path = self.next_path();
        let mut table = NewTableFile::create(&path).map_err(|error| io_error(&error))?;
        for (key, change) in self.recent.iter().filter(|(_, change)| !matches!(change, Change::Merge(_))) {
            table.add(key, &change.encode()).map_err(table_error)?;
        }
        self.install(table, path, 0)?;
        self.recent.retain(|_, change| matches!(change, Change::Merge(_)));
        self.recent_bytes = self.recent.keys().map(|key| key.len() + ENTRY_BYTES).sum();
        self.merge_tables()
    }

    fn merge_tables(&mut self) -> Result<(), EngineError> {
        let length = |table: &Arc<FileTable>| sst::Source::len_bytes(table.source());
        let lengths: Vec<u64> = self.tables.iter().map(length).collect();
        let Some(count) = sst::tables_to_merge(&lengths) else { return Ok(()) };
        let path = self.next_path();
        let mut merged = NewTableFile::create(&path).map_err(|error| io_error(&error))?;
        let mut rows = sst::Merge::new(self.tables[..count].iter().map(|table| table.scan(Bound::Unbounded)));
        while rows.advance().map_err(table_error)? {
            merged.add(rows.key(), rows.value()).map_err(table_error)?;
        }
        self.install(merged, path, count)
    }

    fn next_path(&mut self) -> PathBuf {
        self.next_table += 1;
        self.dir.join(format!("{:06}.{TEMPORARY}", self.next_table))
    }

    /// Replaces the newest tables, which may be none, by a new one.
    fn install(&mut self, table: NewTableFile, path: PathBuf, replaced: usize) -> Result<(), EngineError> {
        table.finish().map_err(table_error)?;
        let table = FileTable::open_file(path, self.next_table, &self.cache).map_err(table_error)?;
        // It is deleted with the map.
        table.mark_obsolete();
        self.tables.splice(..replaced, [table]);
        Ok(())
    }

    /// Returns the changes of a range, ascending.
    pub(crate) fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Changes<'_> {
        let mut inputs: Vec<Box<dyn sst::Sorted + '_>> = Vec::with_capacity(1 + self.tables.len());
        if !is_empty(from, to) {
            let rows = self.recent.range::<[u8], _>((from, to));
            inputs.push(Box::new(RecentCursor { rows, key: &[], value: Bytes::new() }));
            inputs.extend(
                self.tables.iter().map(|table| Box::new(table.scan_part(from)) as Box<dyn sst::Sorted + '_>),
            );
        }
        Changes { merge: sst::Merge::new(inputs), to: to.map(<[u8]>::to_vec) }
    }

    /// Returns the last key of a range that has a change.
    pub(crate) fn last_key(&self, range: &KeyRange) -> Result<Option<Vec<u8>>, EngineError> {
        let (from, to) = range.bounds();
        if is_empty(from, to) {
            return Ok(None);
        }
        let mut last = self.recent.range::<[u8], _>((from, to)).next_back().map(|(key, _)| key.clone());
        for table in &self.tables {
            let found = table.last_before(&range.to).map_err(table_error)?.map(|(key, _)| key);
            last = last.max(found.filter(|key| *key >= range.from));
        }
        Ok(last)
    }

    /// Returns the approximate memory of the changes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        mem::size_of::<Self>() + self.recent_bytes
    }

    /// Returns the number of table files.
    #[cfg(test)]
    fn tables(&self) -> usize {
        self.tables.len()
    }
}

/// Changes in ascending order of their keys.
pub(crate) struct Changes<'a> {
    merge: sst::Merge<Box<dyn sst::Sorted + 'a>>,
    to: Bound<Vec<u8>>,
}

impl Changes<'_> {
    /// Returns the next change.
    pub(crate) fn next(&mut self) -> Result<Option<(Vec<u8>, Change)>, EngineError> {
        if !self.merge.advance().map_err(table_error)? {
            return Ok(None);
        }
        let key = self.merge.key();
        let is_within = match &self.to {
            Bound::Unbounded => true,
            Bound::Included(to) => key <= to.as_slice(),
            Bound::Excluded(to) => key < to.as_slice(),
        };
        if !is_within {
            return Ok(None);
        }
        Ok(Some((key.to_vec(), Change::decode(self.merge.value())?)))
    }
}

/// A cursor over the changes in memory.
struct RecentCursor<'a> {
    rows: btree_map::Range<'a, Vec<u8>, Change>,
    key: &'a [u8],
    value: Bytes,
}

impl sst::Sorted for RecentCursor<'_> {
    fn advance(&mut self) -> sst::Result<bool> {
        let Some((key, change)) = self.rows.next() else { return Ok(false) };
        self.key = key;
        self.value = change.encode().into();
        Ok(true)
    }

    fn key(&self) -> &[u8] {
        self.key
    }

    fn value(&self) -> &Bytes {
        &self.value
    }
}

fn family(key: &[u8]) -> usize {
    key.first().copied().unwrap_or_default().into()
}

/// Returns whether bounds are reversed or exclude all keys, for which `BTreeMap::range` panics.
fn is_empty(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from >= to
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meta::Merge;
    use store::Entropy;

    #[test]
    fn a_map_with_table_files_equals_a_map_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let entropy = Entropy::new(5);
        let mut model = BTreeMap::new();
        let mut map = LocalMap::new(folder.path(), 4000);
        let mut tables_max = 0;
        for round in 0..5000_u32 {
            let key = (entropy.below(400) as u16).to_be_bytes().to_vec();
            let change = match entropy.below(5) {
                0 => Change::Delete,
                1 if key[0] == 0 && key[1] < 4 => Change::Merge(Merge::links(round as i32)),
                _ => Change::Put(round.to_be_bytes()[..].into()),
            };
            model.insert(key.clone(), change.clone());
            map.insert(key, change);
            map.spill_if_full().unwrap();
            tables_max = tables_max.max(map.tables());
        }
        assert!((3..20).contains(&tables_max), "{tables_max} tables");
        for key in 0..400_u16 {
            assert_eq!(map.get(&key.to_be_bytes()).unwrap().as_ref(), model.get(&key.to_be_bytes()[..]));
        }
        for _ in 0..200 {
            let bound = || (entropy.below(400) as u16).to_be_bytes().to_vec();
            let range = KeyRange { from: bound(), to: bound() };
            let (from, to) = range.bounds();
            let mut changes = map.range(from, to);
            let found: Vec<_> = std::iter::from_fn(|| changes.next().unwrap()).collect();
            let expected = model.iter().filter(|(key, _)| range.contains(key));
            assert_eq!(found, Vec::from_iter(expected.map(|(key, change)| (key.clone(), change.clone()))));
            assert_eq!(map.last_key(&range).unwrap(), found.last().map(|(key, _)| key.clone()));
        }
        assert!(map.memory_bytes() < 8000);
        drop(map);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "temporary files are deleted");
    }
}
