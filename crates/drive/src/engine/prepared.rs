//! Prepared changes: what a commit makes durable, gathered by its caller.

use crate::error::{Error, Result};
use crate::format::{Body, Change, IndexKey, ObjectRecord, RunSlice};
use crate::index::ENTRY_BYTES;
use crate::policy::Purpose;
use crate::space::Hold;
use bytes::Bytes;

/// The most bytes of a change's encoded lengths and numbers, apart from its key and value.
const CHANGE_BYTES: u64 = 32;

/// Changes that commit together or not at all.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    /// Objects whose bytes go into the frame, each with its own key.
    pub(crate) inline_puts: Vec<InlinePut>,
    pub(crate) changes: Vec<Change>,
    /// Guards to keep until the commit is done. They cover runs named by the changes, whose data is written but not flushed.
    pub(crate) holds: Vec<Hold>,
    pub(crate) purpose: Purpose,
    /// Cached bytes that get the number of their write.
    pub(crate) rekeys: Vec<CacheRekey>,
    /// Writes whose bytes are no longer in use, and their bodies: their cached bytes can be dropped.
    pub(crate) dropped: Vec<(u64, Body)>,
}

/// Bytes of runs that are cached under other numbers, and get the number of a write when that is committed.
#[derive(Debug)]
pub(crate) struct CacheRekey {
    pub(crate) write: u64,
    pub(crate) slices: Vec<RunSlice>,
    /// The numbers the bytes are cached under, each with the number of runs it applies to, in order. 0: the bytes are not cached.
    pub(crate) old_numbers: Vec<(u64, usize)>,
}

/// An object whose bytes go into the frame.
#[derive(Debug)]
pub(crate) struct InlinePut {
    pub(crate) key: IndexKey,
    /// A record with an inline body. The commit sets the position in it.
    pub(crate) record: ObjectRecord,
    /// The bytes of the object.
    pub(crate) bytes: Bytes,
    /// Maximum bytes that the object takes in a frame: its own, and those of its entry.
    pub(super) frame_bytes: u64,
}

impl Prepared {
    pub(crate) fn is_empty(&self) -> bool {
        self.inline_puts.is_empty() && self.changes.is_empty()
    }

    /// Adds the changes that make a write an owner of the runs of a body. The body's bytes are cached under these
    /// numbers ([`CacheRekey::old_numbers`]).
    pub(crate) fn retain(&mut self, write: u64, body: &Body, old_numbers: Vec<(u64, usize)>) {
        if let Body::Runs(slices) = body {
            self.changes.extend(slices.iter().map(|slice| Change::Retain(slice.run)));
            let numbered: usize = old_numbers.iter().map(|(_, runs)| runs).sum();
            assert_eq!(numbered, slices.len(), "each run is cached under one number, or under none");
            self.rekeys.push(CacheRekey { write, slices: slices.clone(), old_numbers });
        }
    }

    /// Adds the changes that end a committed record's ownership of its body.
    pub(crate) fn release(&mut self, record: &ObjectRecord) {
        self.dropped.push((record.write, record.body.clone()));
        match &record.body {
            Body::Inline(inline) => self.changes.push(Change::Dead { at: inline.at, len: inline.len }),
            Body::Runs(slices) => {
                self.changes.extend(slices.iter().map(|slice| Change::Release(slice.run)));
            }
            Body::DeleteMarker => {}
        }
    }

    /// Adds all of another set of changes.
    pub(crate) fn extend(&mut self, other: Self) {
        self.inline_puts.extend(other.inline_puts);
        self.changes.extend(other.changes);
        self.holds.extend(other.holds);
        self.purpose = self.purpose.max(other.purpose);
        self.rekeys.extend(other.rekeys);
        self.dropped.extend(other.dropped);
    }

    /// Refuses entries that are too long for a table of the index, as every later checkpoint would fail.
    pub(crate) fn check_lengths(&self) -> Result<()> {
        let is_too_long = |change: &Change| match change {
            Change::Put { key, value } => key.len() > sst::KEY_LEN_MAX || value.len() > sst::VALUE_LEN_MAX,
            _ => false,
        };
        match self.changes.iter().any(is_too_long) {
            true => Err(Error::Unsuitable(
                "the object is too fragmented for the index: store it again, or delete other objects first"
                    .into(),
            )),
            false => Ok(()),
        }
    }

    /// Returns the most bytes that the changes take in a frame.
    pub(crate) fn frame_bytes(&self) -> u64 {
        let inline_puts: u64 = self.inline_puts.iter().map(|put| put.frame_bytes).sum();
        inline_puts + self.changes.iter().map(change_bytes).sum::<u64>()
    }

    /// Returns the approximate bytes that the changes add to the memtable.
    pub(super) fn index_bytes(&self) -> u64 {
        let entries = (self.changes.len() + self.inline_puts.len()) as u64;
        let inline_bytes: u64 = self.inline_puts.iter().map(|put| put.record.body.len_bytes()).sum();
        self.frame_bytes() - inline_bytes + entries * ENTRY_BYTES as u64
    }
}

impl InlinePut {
    pub(crate) fn new(key: IndexKey, record: ObjectRecord, bytes: Bytes) -> Self {
        let entry = key.0.len() + record.encode().len();
        let frame_bytes = record.body.len_bytes() + entry as u64 + CHANGE_BYTES;
        Self { key, record, bytes, frame_bytes }
    }

    /// Returns the write number and the bytes.
    pub(crate) fn write_and_bytes(&self) -> (u64, Bytes) {
        (self.record.write, self.bytes.clone())
    }
}

/// Returns the maximum length of a change in a frame, in bytes.
fn change_bytes(change: &Change) -> u64 {
    CHANGE_BYTES
        + match change {
            Change::Put { key, value } => (key.len() + value.len()) as u64,
            Change::Delete { key } => key.len() as u64,
            _ => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: longer entries were committed, and every later checkpoint failed until they were deleted.
    #[test]
    fn an_entry_that_no_table_can_hold_is_refused() {
        let with_lengths = |key_bytes: usize, value_bytes: usize| {
            let change = Change::Put { key: vec![1; key_bytes], value: vec![0; value_bytes] };
            Prepared { changes: vec![change], ..Prepared::default() }
        };
        with_lengths(sst::KEY_LEN_MAX, sst::VALUE_LEN_MAX).check_lengths().unwrap();
        for (key_bytes, value_bytes) in [(sst::KEY_LEN_MAX + 1, 1), (1, sst::VALUE_LEN_MAX + 1)] {
            let refused = with_lengths(key_bytes, value_bytes).check_lengths();
            assert!(matches!(refused, Err(Error::Unsuitable(_))), "{key_bytes} {value_bytes}");
        }
    }
}
