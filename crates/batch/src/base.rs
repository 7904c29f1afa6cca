//! The base of an overlay: a snapshot, what has been read of it, and what the outcome of ops depends on.
//!
//! Dentries are fetched by directory: the first lookup in a directory reads up to 1,025 of its dentries. If these are all, further lookups
//! of missing names cost no read.
//!
//! Dependencies are noted per inode where that is enough. The version of an inode changes with each change of its dentries, its extended
//! attributes, its ACLs and its extents, so a lookup in a directory depends on the version of the directory's inode.

use meta::{Condition, EngineError, Ino, KeyRange, Reader, Rows, Versioned, schema};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::{Bound, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum dentries of a directory whose missing names are known from the cache. One more is read, to see whether there are more.
const GROUP_MAX: usize = 1024;

/// Rows in the cache beyond which it is emptied. A batch could otherwise fill the memory of its verifier with a few ops per directory.
const CACHE_ROWS_MAX: usize = 256 << 10;

/// A snapshot with a cache of what was read.
pub(crate) struct Base {
    reader: Arc<dyn Reader>,
    /// The leased inode numbers above the last one that the snapshot has.
    fresh: Range<Ino>,
    cache: Mutex<Cache>,
}

/// The records of the snapshot that were read, and what the batch depends on.
#[derive(Default)]
struct Cache {
    /// Records by key; `None` for one that the snapshot does not have.
    rows: HashMap<Vec<u8>, Option<Versioned>>,
    /// The directories whose dentries were read together, and whether all of them are in `rows`.
    groups: HashMap<Ino, bool>,
    /// The records on which the ops of the batch depend.
    noted: Noted,
}

/// The records on which ops depend.
#[derive(Default)]
struct Noted {
    /// Keys of records on whose version, or absence, ops depend.
    keys: BTreeSet<Vec<u8>>,
    /// Keys of records on whose existence ops depend.
    present: BTreeSet<Vec<u8>>,
    /// The inode that was noted last, which is mostly noted again next.
    last: Option<Ino>,
}

impl Base {
    /// Creates the base of a batch that gives new inodes the numbers of `lease`.
    pub(crate) fn new(reader: Arc<dyn Reader>, lease: &Range<Ino>) -> Result<Self, EngineError> {
        let range = KeyRange { from: schema::inode(lease.start), to: schema::inode(lease.end) };
        let used = reader.last(&range)?.map(|(key, _)| schema::ino_of(&key)).transpose()?;
        let fresh = used.map_or(lease.start, |last| Ino(last.0.saturating_add(1)))..lease.end;
        Ok(Self { reader, fresh, cache: Mutex::default() })
    }

    /// Returns whether the snapshot has no inode with a leased number. `lease` is the one given to [`Self::new`].
    pub(crate) fn has_fresh_lease(&self, lease: &Range<Ino>) -> bool {
        self.fresh == *lease
    }

    /// Returns the snapshot.
    pub(crate) fn reader(&self) -> &dyn Reader {
        &*self.reader
    }

    /// Returns a record of the snapshot; `None` if it has none. With `is_noted`, the record is noted as one on which the outcome of ops
    /// depends.
    pub(crate) fn get(&self, key: &[u8], is_noted: bool) -> Result<Option<Versioned>, EngineError> {
        if self.is_fresh(key) {
            return Ok(None);
        }
        let mut cache = self.lock();
        if is_noted {
            cache.noted.note(key);
        }
        if let Some(row) = cache.rows.get(key) {
            return Ok(row.clone());
        }
        if cache.rows.len() > CACHE_ROWS_MAX {
            cache.rows.clear();
            cache.groups.clear();
        }
        if key.first() == Some(&schema::DENTRY) && self.has_whole_group(&mut cache, schema::ino_of(key)?)? {
            return Ok(cache.rows.get(key).cloned().flatten());
        }
        let row = self.reader.get(key)?;
        cache.rows.insert(key.to_vec(), row.clone());
        Ok(row)
    }

    /// Notes that the outcome depends on a record.
    pub(crate) fn note(&self, key: &[u8]) {
        self.lock().noted.note(key);
    }

    /// Notes that the outcome depends on the absence of rows in a range. All keys of the range must belong to one inode, whose version is
    /// noted.
    pub(crate) fn note_range(&self, range: &KeyRange) {
        if !self.is_fresh(&range.from) {
            self.lock().noted.note(&range.from);
        }
    }

    /// Notes that the outcome depends on the existence of a record.
    pub(crate) fn note_present(&self, key: Vec<u8>) {
        if !self.is_fresh(&key) {
            self.lock().noted.present.insert(key);
        }
    }

    /// Returns the keys of the records on whose version or absence the outcome depends, and of those on whose existence it does.
    pub(crate) fn noted(&self) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let cache = self.lock();
        let Noted { keys, present, .. } = &cache.noted;
        (keys.iter().cloned().collect(), present.iter().cloned().collect())
    }

    pub(crate) fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Rows, EngineError> {
        self.reader.scan(from, to, limit)
    }

    pub(crate) fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        self.reader.last(range)
    }

    /// Returns the conditions under which ops have the same outcome over another state as over this snapshot.
    pub(crate) fn conditions(&self) -> Result<Vec<Condition>, EngineError> {
        let noted = std::mem::take(&mut self.lock().noted);
        let mut conditions = Vec::with_capacity(noted.keys.len() + noted.present.len() + 1);
        for key in &noted.keys {
            conditions.push(match self.get(key, false)? {
                Some(found) => Condition::Version { key: key.clone(), version: found.version },
                None => Condition::Absent { key: key.clone() },
            });
        }
        let present = noted.present.difference(&noted.keys);
        conditions.extend(present.map(|key| Condition::Present { key: key.clone() }));
        if self.fresh.start < self.fresh.end {
            let (from, to) = (schema::inode(self.fresh.start), schema::inode(self.fresh.end));
            conditions.push(Condition::RangeEmpty(KeyRange { from, to }));
        }
        self.lock().noted = noted;
        Ok(conditions)
    }

    /// Returns whether the key belongs to a leased inode number that the snapshot has not used, so that it has no record under the key.
    pub(crate) fn is_fresh(&self, key: &[u8]) -> bool {
        !schema::is_of_batch(key) && schema::ino_of(key).is_ok_and(|ino| self.fresh.contains(&ino))
    }

    /// Reads up to 1,025 dentries of a directory, unless this was done before. Returns whether all its dentries are in the cache.
    fn has_whole_group(&self, cache: &mut Cache, dir: Ino) -> Result<bool, EngineError> {
        if let Some(is_whole) = cache.groups.get(&dir) {
            return Ok(*is_whole);
        }
        let range = schema::dentries(dir);
        let (from, to) = range.bounds();
        let rows = self.reader.scan(from, to, GROUP_MAX + 1)?;
        let is_whole = rows.len() <= GROUP_MAX;
        cache.groups.insert(dir, is_whole);
        cache.rows.extend(rows.into_iter().map(|(key, row)| (key, Some(row))));
        Ok(is_whole)
    }

    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Base").field("fresh", &self.fresh).finish_non_exhaustive()
    }
}

impl Noted {
    /// Notes a record: the inode in its key, if every change of the record also changes that inode; otherwise the record itself.
    fn note(&mut self, key: &[u8]) {
        if !schema::changes_with_inode(key) {
            self.keys.insert(key.to_vec());
            return;
        }
        let Ok(ino) = schema::ino_of(key) else { return };
        if self.last.replace(ino) != Some(ino) {
            self.keys.insert(schema::inode(ino));
        }
    }
}
