//! The local log-structured map: the changes of rows that a private namespace has made.
//!
//! The newest changes are in memory. When they exceed a limit they become a temporary table file, and table files of similar size are merged.
//!
//! Invariants: the newest change of a key is in memory or else in the newest table that has the key; merges stay in memory, because the next
//! merge adds to them; a file is deleted with its table; two different changes of a key have different versions, if the changes were inserted
//! with ascending versions. The version of a change may grow when the change becomes a part of a table.

use crate::change::Change;
use crate::table_error::{io_error, table_error};
use bytes::Bytes;
use meta::{EngineError, KeyRange, Seqno};
use sst::{FileTable, NewTableFile};
use std::collections::{BTreeMap, btree_map};
use std::mem;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Approximate memory of an entry beyond its key and its change, in bytes.
const ENTRY_BYTES: usize = 64;

/// Cache of blocks of table files, in bytes.
const CACHE_BYTES: u64 = 32 << 20;

/// Extension of temporary table files.
pub(crate) const TEMPORARY: &str = "tmp";

/// Changes by key.
#[derive(Debug)]
pub(crate) struct LocalMap {
    /// Whether there are changes of a family of records, by the first byte of their keys. Most ops look for records of families without
    /// changes.
    families: [bool; 256],
    /// Changes that are not in a table.
    recent: BTreeMap<Vec<u8>, Versioned>,
    recent_bytes: usize,
    /// The version of the newest change.
    newest: Seqno,
    /// Older changes, newest first.
    tables: Vec<Table>,
    dir: PathBuf,
    memory_bytes_max: usize,
    cache: Arc<sst::Cache>,
    next_table: u64,
}

/// A change and its version.
#[derive(Debug, Clone)]
pub(crate) struct Versioned {
    change: Change,
    version: Seqno,
}

/// A table file, and the version of all its changes.
#[derive(Debug)]
struct Table {
    file: Arc<FileTable>,
    version: Seqno,
}

impl LocalMap {
    /// Creates an empty map, whose table files will be in `dir`. Changes beyond `memory_bytes_max` are written to them.
    pub(crate) fn new(dir: &Path, memory_bytes_max: usize) -> Self {
        Self {
            families: [false; 256],
            recent: BTreeMap::new(),
            recent_bytes: 0,
            newest: Seqno(0),
            tables: Vec::new(),
            dir: dir.to_owned(),
            memory_bytes_max,
            cache: Arc::new(sst::Cache::new(CACHE_BYTES)),
            next_table: 0,
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Change>, EngineError> {
        Ok(self.get_versioned(key)?.map(|(change, _)| change))
    }

    /// Returns the change of a key and its version.
    pub(crate) fn get_versioned(&self, key: &[u8]) -> Result<Option<(Change, Seqno)>, EngineError> {
        if !self.families[family(key)] {
            return Ok(None);
        }
        if let Some(found) = self.recent.get(key) {
            return Ok(Some((found.change.clone(), found.version)));
        }
        for table in &self.tables {
            if let Some(bytes) = table.file.get(key).map_err(table_error)? {
                return Ok(Some((Change::decode(&bytes)?, table.version)));
            }
        }
        Ok(None)
    }

    /// Adds a change, in place of an earlier one of the key.
    pub(crate) fn insert(&mut self, key: Vec<u8>, change: Change, version: Seqno) {
        self.families[family(&key)] = true;
        self.recent_bytes += key.len() + change.len_bytes() + ENTRY_BYTES;
        self.newest = self.newest.max(version);
        self.recent.insert(key, Versioned { change, version });
    }

    /// Writes the changes in memory to a table file if they reach the limit. Merges stay in memory.
    pub(crate) fn spill_if_full(&mut self) -> Result<(), EngineError> {
        if self.recent_bytes < self.memory_bytes_max {
            return Ok(());
        }
        let path = self.next_path();
        let mut table = NewTableFile::create(&path).map_err(|error| io_error(&error))?;
        for (key, found) in self.recent.iter().filter(|(_, found)| !found.is_merge()) {
            table.add(key, &found.change.encode()).map_err(table_error)?;
        }
        self.install(table, path, 0)?;
        self.recent.retain(|_, found| found.is_merge());
        self.recent_bytes = self.recent.keys().map(|key| key.len() + ENTRY_BYTES).sum();
        self.merge_tables()
    }

    /// Merges the newest tables into one, if enough of them have a similar size.
    fn merge_tables(&mut self) -> Result<(), EngineError> {
        let length = |table: &Table| sst::Source::len_bytes(table.file.source());
        let lengths: Vec<u64> = self.tables.iter().map(length).collect();
        let Some(count) = sst::tables_to_merge(&lengths) else { return Ok(()) };
        let path = self.next_path();
        let mut merged = NewTableFile::create(&path).map_err(|error| io_error(&error))?;
        let mut rows =
            sst::Merge::new(self.tables[..count].iter().map(|table| table.file.scan(Bound::Unbounded)));
        while rows.advance().map_err(table_error)? {
            merged.add(rows.key(), rows.value()).map_err(table_error)?;
        }
        self.install(merged, path, count)
    }

    fn next_path(&mut self) -> PathBuf {
        self.next_table += 1;
        self.dir.join(format!("{:06}.{TEMPORARY}", self.next_table))
    }

    /// Puts a new table in the place of the `replaced` newest ones; of none if it has changes that were in memory.
    fn install(&mut self, table: NewTableFile, path: PathBuf, replaced: usize) -> Result<(), EngineError> {
        table.finish().map_err(table_error)?;
        let file = FileTable::open_file(path, self.next_table, &self.cache).map_err(table_error)?;
        // It is deleted with the map.
        file.mark_obsolete();
        self.tables.splice(..replaced, [Table { file, version: self.newest }]);
        Ok(())
    }

    /// Returns the changes of a range, ascending.
    pub(crate) fn range(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Changes<'_> {
        if is_empty(from, to) {
            return Changes::Recent(btree_map::Range::default());
        }
        let rows = self.recent.range::<[u8], _>((from, to));
        if self.tables.is_empty() {
            return Changes::Recent(rows);
        }
        let mut inputs: Vec<Box<dyn sst::Sorted + '_>> = Vec::with_capacity(1 + self.tables.len());
        inputs.push(Box::new(RecentCursor { rows, key: &[], value: Bytes::new() }));
        inputs.extend(
            self.tables.iter().map(|table| Box::new(table.file.scan_part(from)) as Box<dyn sst::Sorted + '_>),
        );
        Changes::Merged { rows: sst::Merge::new(inputs), to: to.map(<[u8]>::to_vec) }
    }

    /// Returns the last key of a range that has a change.
    pub(crate) fn last_key(&self, range: &KeyRange) -> Result<Option<Vec<u8>>, EngineError> {
        let (from, to) = range.bounds();
        if is_empty(from, to) {
            return Ok(None);
        }
        let mut last = self.recent.range::<[u8], _>((from, to)).next_back().map(|(key, _)| key.clone());
        for table in &self.tables {
            let found = table.file.last_before(&range.to).map_err(table_error)?.map(|(key, _)| key);
            last = last.max(found.filter(|key| *key >= range.from));
        }
        Ok(last)
    }

    /// Returns the approximate memory of the changes in memory, in bytes.
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
pub(crate) enum Changes<'a> {
    /// All of them are in memory.
    Recent(btree_map::Range<'a, Vec<u8>, Versioned>),
    /// The newest changes of memory and table files, up to a bound.
    Merged { rows: sst::Merge<Box<dyn sst::Sorted + 'a>>, to: Bound<Vec<u8>> },
}

impl Changes<'_> {
    /// Returns the next key with its newest change; `None` at the end of the range.
    pub(crate) fn next(&mut self) -> Result<Option<(Vec<u8>, Change)>, EngineError> {
        let (rows, to) = match self {
            Self::Recent(rows) => {
                return Ok(rows.next().map(|(key, found)| (key.clone(), found.change.clone())));
            }
            Self::Merged { rows, to } => (rows, to),
        };
        if !rows.advance().map_err(table_error)? {
            return Ok(None);
        }
        let key = rows.key();
        let is_within = match to {
            Bound::Unbounded => true,
            Bound::Included(to) => key <= to.as_slice(),
            Bound::Excluded(to) => key < to.as_slice(),
        };
        if !is_within {
            return Ok(None);
        }
        Ok(Some((key.to_vec(), Change::decode(rows.value())?)))
    }
}

/// A cursor over the changes in memory.
struct RecentCursor<'a> {
    rows: btree_map::Range<'a, Vec<u8>, Versioned>,
    /// The key at the cursor.
    key: &'a [u8],
    /// The encoded change at the cursor.
    value: Bytes,
}

impl sst::Sorted for RecentCursor<'_> {
    fn advance(&mut self) -> sst::Result<bool> {
        let Some((key, found)) = self.rows.next() else { return Ok(false) };
        self.key = key;
        self.value = found.change.encode().into();
        Ok(true)
    }

    fn key(&self) -> &[u8] {
        self.key
    }

    fn value(&self) -> &Bytes {
        &self.value
    }
}

impl Versioned {
    fn is_merge(&self) -> bool {
        matches!(self.change, Change::Merge(_))
    }
}

/// Returns the family of a key: its first byte.
fn family(key: &[u8]) -> usize {
    key.first().copied().unwrap_or_default().into()
}

/// Returns whether no key is within the bounds. `BTreeMap::range` panics for some such bounds.
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
        // The versions under which each change of a key was seen.
        let mut seen: BTreeMap<Vec<u8>, BTreeMap<Seqno, u64>> = BTreeMap::new();
        let folder = tempfile::tempdir().unwrap();
        let entropy = Entropy::new(5);
        let (mut model, mut changes) = (BTreeMap::new(), BTreeMap::new());
        let mut map = LocalMap::new(folder.path(), 4000);
        let mut tables_max = 0;
        for round in 0..5000_u32 {
            let key = (entropy.below(400) as u16).to_be_bytes().to_vec();
            let change = match entropy.below(5) {
                0 => Change::Delete,
                1 if key[0] == 0 && key[1] < 4 => Change::Merge(Merge::links(round as i32)),
                _ => Change::Put(round.to_be_bytes()[..].into()),
            };
            changes.insert(key.clone(), u64::from(round));
            model.insert(key.clone(), change.clone());
            map.insert(key, change, Seqno(round.into()));
            map.spill_if_full().unwrap();
            tables_max = tables_max.max(map.tables());
            let key = (entropy.below(400) as u16).to_be_bytes().to_vec();
            if let Some((_, version)) = map.get_versioned(&key).unwrap() {
                let last = changes[&key];
                let seen = seen.entry(key).or_default();
                assert_eq!(*seen.entry(version).or_insert(last), last, "one version for two changes");
            }
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
