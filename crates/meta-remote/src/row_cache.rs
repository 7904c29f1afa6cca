//! A bounded cache of records in memory, so that reads need no round trip.
//!
//! The commits of this session reach the cache before they are answered. Those of other sessions reach it when the follower reads the log
//! ([`crate::follower`]). A cached record is one that the database had when all commits known here were made, or has now. Only the conditions
//! of a commit are exact: the database checks them.
//!
//! Families of records that an op reads without depending on them are not cached: extents, uses of objects, additional names, and usage of
//! quotas (`docs/decisions/0116-a-cache-of-records.md`).
//!
//! Invariants: a record enters the cache only if no known commit later than the beginning of its read changed it; a record that a known commit
//! of another session changed later is not in the cache; the cache takes at most its bytes.

use crate::applied::MergedRow;
use meta::{Commit, Condition, Seqno, Versioned, schema};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Slots of the table of recent changes. Keys of one slot count as changed together.
const SLOTS: usize = 4096;

/// Maximum bytes of a cached record. Extended attributes can be longer.
const RECORD_BYTES_MAX: usize = 4096;

/// Approximate memory of a cached record in addition to its key and value, in bytes.
const RECORD_BYTES: usize = 112;

/// Records by their keys, in two generations: what is not used while the younger one fills up is dropped.
#[derive(Debug)]
pub(crate) struct RowCache {
    bytes_max: usize,
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    /// Records used lately, and those that were not used since the young generation began.
    young: Generation,
    old: Generation,
    /// The last known commit that changed a key of each slot.
    changed: Box<[u64]>,
    /// Whether records may be in the cache. They may not while the outcome of a commit is unknown.
    is_enabled: bool,
    /// Number of times that the database had lost commits.
    restarts: u64,
    /// The newest commit that the database had after the last loss.
    restarted_at: Seqno,
}

#[derive(Debug, Default)]
struct Generation {
    rows: HashMap<Box<[u8]>, Row>,
    bytes: usize,
}

/// The cached state of a key.
#[derive(Debug, Clone)]
enum Row {
    Found(Versioned),
    /// There was no record after this commit.
    Absent(Seqno),
}

/// The state in which a read begins: the newest known commit, and how often the database had lost commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    known: Seqno,
    restarts: u64,
}

impl RowCache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let table = Table {
            young: Generation::default(),
            old: Generation::default(),
            changed: vec![0; SLOTS].into_boxed_slice(),
            is_enabled: true,
            restarts: 0,
            restarted_at: Seqno(0),
        };
        Self { bytes_max, table: Mutex::new(table) }
    }

    /// Returns the record of a key, if it is known; the inner `None` if it is known that there is none.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<Versioned>> {
        let mut table = self.lock();
        let row = match table.young.rows.get(key) {
            Some(row) => row.clone(),
            None => {
                let row = table.old.remove(key)?;
                table.insert(key, row.clone(), self.bytes_max);
                row
            }
        };
        Some(match row {
            Row::Found(found) => Some(found),
            Row::Absent(_) => None,
        })
    }

    /// Returns the mark of a read that begins when this commit is the newest known one.
    pub(crate) fn mark(&self, known: Seqno) -> Mark {
        Mark { known, restarts: self.lock().restarts }
    }

    /// Caches the result of a read that began at a mark.
    pub(crate) fn fill(&self, mark: Mark, key: &[u8], found: Option<&Versioned>) {
        let Mark { known, restarts } = mark;
        let is_cached = match found {
            Some(found) => is_cached(key) && found.value.len() <= RECORD_BYTES_MAX,
            None => is_absence_cached(key),
        };
        if !is_cached {
            return;
        }
        let slot = slot_of(key);
        let mut table = self.lock();
        let row = found.map_or(Row::Absent(known), |found| Row::Found(found.clone()));
        if table.is_known_after(key, row.as_of()) {
            return;
        }
        match table.is_enabled && table.restarts == restarts && table.changed[slot] <= known.0 {
            true => table.insert(key, row, self.bytes_max),
            // A later commit may have changed the record, so neither the result of the read nor an older cached row is valid.
            false => drop(table.remove(key)),
        }
    }

    /// Applies a commit of this session to the cache.
    pub(crate) fn commit(&self, commit: &Commit, at: Seqno) {
        let puts = commit.puts.iter().map(|(key, value)| {
            let found = Versioned { value: value.clone(), version: at };
            (key.as_slice(), Row::Found(found), is_cached(key) && value.len() <= RECORD_BYTES_MAX)
        });
        let deletes =
            commit.deletes.iter().map(|key| (key.as_slice(), Row::Absent(at), is_absence_cached(key)));
        let mut table = self.lock();
        for (key, row, is_cached) in puts.chain(deletes) {
            let slot = slot_of(key);
            let is_newest = !table.is_known_after(key, at);
            table.changed[slot] = table.changed[slot].max(at.0);
            if is_newest {
                table.remove(key);
                if is_cached && table.is_enabled {
                    table.insert(key, row, self.bytes_max);
                }
            }
        }
    }

    /// Applies merges of commits of this session to the cache.
    pub(crate) fn merge(&self, rows: Vec<MergedRow>) {
        let mut table = self.lock();
        for row in rows {
            let slot = slot_of(&row.key);
            table.changed[slot] = table.changed[slot].max(row.version.0);
            // A record that another session changed before the merge, and that is not known here, cannot be completed.
            let Some(Row::Found(found)) = table.remove(&row.key) else { continue };
            if found.version == row.before
                && let Ok(value) = row.columns.put_into(&row.key, &found.value)
            {
                table.insert(&row.key, Row::Found(Versioned { value, version: row.version }), self.bytes_max);
            }
        }
    }

    /// Drops what a commit of this session may have changed, or what it was wrong about.
    pub(crate) fn forget(&self, commit: &Commit) {
        let mut table = self.lock();
        for condition in &commit.conditions {
            match condition {
                Condition::Version { key, .. } | Condition::Present { key } | Condition::Absent { key } => {
                    table.remove(key);
                }
                Condition::RangeEmpty(_) => {}
            }
        }
        for key in crate::changed_keys::of(commit) {
            table.remove(key);
        }
    }

    /// Drops a record that a commit of another session changed.
    pub(crate) fn drop_changed(&self, key: &[u8], at: Seqno) {
        let slot = slot_of(key);
        let mut table = self.lock();
        table.changed[slot] = table.changed[slot].max(at.0);
        let before = Seqno(at.0.saturating_sub(1));
        if !table.is_known_after(key, before) {
            table.remove(key);
        }
    }

    /// Drops all records. All keys count as changed by `at`.
    pub(crate) fn clear(&self, at: Seqno) {
        let mut table = self.lock();
        (table.young, table.old) = Default::default();
        table.changed.iter_mut().for_each(|changed| *changed = at.0.max(*changed));
    }

    /// Drops all records and marks, because the database has lost commits. Its newest one is `at`.
    pub(crate) fn restart(&self, at: Seqno) {
        let mut table = self.lock();
        (table.young, table.old) = Default::default();
        table.changed.fill(at.0);
        table.restarts += 1;
        table.restarted_at = at;
    }

    /// Returns how often the database had lost commits, and its newest one after the last loss.
    pub(crate) fn restarts(&self) -> (u64, Seqno) {
        let table = self.lock();
        (table.restarts, table.restarted_at)
    }

    /// Keeps the cache empty while the outcome of a commit is unknown.
    pub(crate) fn disable(&self) {
        let mut table = self.lock();
        (table.young, table.old) = Default::default();
        table.is_enabled = false;
    }

    /// Lets records in again. Those that were read before the newest commit `at` was known stay out.
    pub(crate) fn enable(&self, at: Seqno) {
        self.clear(at);
        self.lock().is_enabled = true;
    }

    /// Returns the approximate memory of all rows, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let table = self.lock();
        table.young.bytes + table.old.bytes
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Adds a row to the young generation, which becomes the old one once it has half of the bytes.
    fn insert(&mut self, key: &[u8], row: Row, bytes_max: usize) {
        self.remove(key);
        self.young.insert(key, row);
        if self.young.bytes > bytes_max / 2 {
            self.old = std::mem::take(&mut self.young);
        }
    }

    fn remove(&mut self, key: &[u8]) -> Option<Row> {
        self.young.remove(key).or_else(|| self.old.remove(key))
    }

    /// Returns whether the cached row is of a commit after `at`.
    fn is_known_after(&self, key: &[u8], at: Seqno) -> bool {
        let cached = self.young.rows.get(key).or_else(|| self.old.rows.get(key));
        cached.is_some_and(|cached| cached.as_of() > at)
    }
}

impl Generation {
    fn insert(&mut self, key: &[u8], row: Row) {
        self.bytes += bytes_of(key, &row);
        self.rows.insert(key.into(), row);
    }

    fn remove(&mut self, key: &[u8]) -> Option<Row> {
        let row = self.rows.remove(key)?;
        self.bytes -= bytes_of(key, &row);
        Some(row)
    }
}

impl Row {
    /// Returns the commit that wrote the record, or as of which there was none.
    fn as_of(&self) -> Seqno {
        match self {
            Self::Found(found) => found.version,
            Self::Absent(at) => *at,
        }
    }
}

/// Returns the slot of a key in the table of recent changes.
fn slot_of(key: &[u8]) -> usize {
    let mut hasher = DefaultHasher::new();
    hasher.write(key);
    usize::try_from(hasher.finish() % SLOTS as u64).unwrap_or_default()
}

/// Returns the approximate memory of a row, in bytes.
fn bytes_of(key: &[u8], row: &Row) -> usize {
    let value = match row {
        Row::Found(found) => found.value.len(),
        Row::Absent(_) => 0,
    };
    RECORD_BYTES + key.len() + value
}

/// Returns whether the records of a key's family are cached.
fn is_cached(key: &[u8]) -> bool {
    schema::is_read_under_condition(key)
}

/// Returns whether the absence of a key's record is cached. The absence of an inode is not: an inode that is missing under its name was
/// removed, and only the database should say so.
fn is_absence_cached(key: &[u8]) -> bool {
    is_cached(key) && !schema::inodes().contains(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use meta::Ino;

    fn row(value: &'static [u8], version: u64) -> Versioned {
        Versioned { value: value.into(), version: Seqno(version) }
    }

    /// A regression test: a read that a later commit refused left an older row of the key in the cache.
    #[test]
    fn a_row_that_is_older_than_a_refused_read_is_dropped() {
        let (cache, key) = (RowCache::new(1 << 20), schema::inode(Ino(7)));
        cache.fill(cache.mark(Seqno(1)), &key, Some(&row(b"old", 1)));
        let other =
            (8..).map(|number| schema::inode(Ino(number))).find(|other| slot_of(other) == slot_of(&key));
        cache.drop_changed(&other.unwrap(), Seqno(5));
        assert_eq!(cache.get(&key), Some(Some(row(b"old", 1))));
        cache.fill(cache.mark(Seqno(4)), &key, Some(&row(b"new", 3)));
        assert_eq!(cache.get(&key), None);
    }
}
