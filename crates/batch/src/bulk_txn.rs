//! The transaction of many creates in one directory. The records of the directory are read once, and nothing is kept of the new inodes.
//!
//! Invariant, which callers of [`BulkTxn::keep_entry`] must ensure: an entry is kept only if it has no other effects than a dentry, an
//! inode, and merges into records of the directory. Further entries of the same directory then read nothing that it has changed, as long as
//! no quota is set.

use crate::overlay::Overlay;
use meta::{EngineError, Ino, KeyRange, Merge, Reader, Txn, Value, schema};

/// A transaction over an overlay.
pub(crate) struct BulkTxn<'o> {
    overlay: &'o Overlay,
    dir: Ino,
    /// Records of the directory and of the volume that were read; `None` for a missing one.
    known: Vec<(Vec<u8>, Option<Value>)>,
    /// Keys whose existence was noted.
    present: Vec<Vec<u8>>,
    /// The merges of all entries that were kept, added up for each key.
    merges: Vec<(Vec<u8>, Merge)>,
    /// The effects of the entry that is being created.
    entry: Entry,
}

/// The effects of an entry that is being created.
#[derive(Default)]
struct Entry {
    puts: Vec<(Vec<u8>, Vec<u8>)>,
    merges: Vec<(Vec<u8>, Merge)>,
    /// Whether the entry has removed a record, or depends on a range of records.
    has_other_effects: bool,
}

impl<'o> BulkTxn<'o> {
    pub(crate) fn new(overlay: &'o Overlay, dir: Ino) -> Self {
        let (known, present, merges) = Default::default();
        Self { overlay, dir, known, present, merges, entry: Entry::default() }
    }

    pub(crate) fn overlay(&self) -> &'o Overlay {
        self.overlay
    }

    /// Begins an entry, and forgets the effects of the entry before if they were not kept.
    pub(crate) fn begin_entry(&mut self) {
        self.entry.puts.clear();
        self.entry.merges.clear();
        self.entry.has_other_effects = false;
    }

    /// Returns whether the entry has put exactly these two records, in this order, and has no other effects than merges.
    pub(crate) fn has_only(&self, dentry: (&[u8], &[u8]), inode: (&[u8], &[u8])) -> bool {
        let is = |at: usize, (key, value): (&[u8], &[u8])| {
            self.entry.puts.get(at).is_some_and(|(put, row)| put == key && row == value)
        };
        !self.entry.has_other_effects && self.entry.puts.len() == 2 && is(0, dentry) && is(1, inode)
    }

    /// Keeps the merges of the entry. Its dentry and its inode are not kept: the caller has them.
    pub(crate) fn keep_entry(&mut self) {
        for (key, merge) in self.entry.merges.drain(..) {
            match self.merges.iter_mut().find(|(merged, _)| *merged == key) {
                Some((_, earlier)) => *earlier = earlier.then(merge),
                None => self.merges.push((key, merge)),
            }
        }
    }

    /// Returns the merges of all entries that were kept.
    pub(crate) fn into_merges(self) -> Vec<(Vec<u8>, Merge)> {
        self.merges
    }

    /// Returns the record of a key as the entry that is being created has left it. Records of the directory are read
    /// once.
    fn find(&mut self, key: &[u8], is_noted: bool) -> Result<Option<Value>, EngineError> {
        if let Some((_, put)) = self.entry.puts.iter().find(|(put, _)| put == key) {
            return Ok(Some(put.as_slice().into()));
        }
        let is_of_dir =
            key.first() != Some(&schema::DENTRY) && schema::ino_of(key).map_or(true, |ino| ino == self.dir);
        if !is_of_dir {
            return self.overlay.read(key, is_noted);
        }
        if let Some((_, value)) = self.known.iter().find(|(known, _)| known == key) {
            return Ok(value.clone());
        }
        let value = self.overlay.read(key, true)?;
        self.known.push((key.to_vec(), value.clone()));
        Ok(value)
    }
}

impl Txn for BulkTxn<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<Value>, EngineError> {
        self.find(key, true)
    }

    fn peek(&mut self, key: &[u8]) -> Result<Option<Value>, EngineError> {
        self.find(key, false)
    }

    fn scan(&mut self, range: &KeyRange, limit: usize) -> Result<Vec<(Vec<u8>, Value)>, EngineError> {
        self.entry.has_other_effects = true;
        let (from, to) = range.bounds();
        let rows = Reader::scan(self.overlay, from, to, limit)?;
        Ok(rows.into_iter().map(|(key, found)| (key, found.value)).collect())
    }

    fn last(&mut self, range: &KeyRange) -> Result<Option<(Vec<u8>, Value)>, EngineError> {
        self.entry.has_other_effects = true;
        Ok(Reader::last(self.overlay, range)?.map(|(key, found)| (key, found.value)))
    }

    fn require_present(&mut self, key: Vec<u8>) {
        if !self.present.contains(&key) {
            self.overlay.base.note_present(key.clone());
            self.present.push(key);
        }
    }

    fn require_empty(&mut self, range: &KeyRange) -> Result<bool, EngineError> {
        self.overlay.base.note_range(range);
        Ok(self.scan(range, 1)?.is_empty())
    }

    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        match self.entry.puts.iter_mut().find(|(put, _)| *put == key) {
            Some((_, earlier)) => *earlier = value,
            None => self.entry.puts.push((key, value)),
        }
    }

    fn delete(&mut self, _: Vec<u8>) {
        self.entry.has_other_effects = true;
    }

    fn merge(&mut self, key: Vec<u8>, merge: Merge) -> Result<(), EngineError> {
        self.entry.merges.push((key, merge));
        Ok(())
    }
}
