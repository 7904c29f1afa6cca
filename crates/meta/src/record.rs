//! Records, their versions, and ranges of keys.

use std::ops::Bound;
use std::sync::Arc;

/// The sequence number of a commit, which is also the version of every key that the commit wrote. Increases with each commit,
/// not always by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seqno(pub u64);

/// A record's bytes; cloning shares them.
pub type Value = Arc<[u8]>;

/// Keys with their records, in ascending order.
pub type Rows = Vec<(Vec<u8>, Versioned)>;

/// A record and the commit that wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned {
    /// The record's value.
    pub value: Value,
    /// The last commit that put the record or merged into it; for a record of a [run](crate::Run), the number reserved for the run.
    pub version: Seqno,
}

/// A half-open range of keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyRange {
    /// The lower bound, inclusive.
    pub from: Vec<u8>,
    /// The upper bound, exclusive.
    pub to: Vec<u8>,
}

impl KeyRange {
    /// Returns the bounds in the form that [`Reader::scan`] takes.
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (Bound::Included(&self.from), Bound::Excluded(&self.to))
    }

    /// Returns whether the key is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.from.as_slice() <= key && key < self.to.as_slice()
    }
}

/// The record of a dentry, and that of its inode.
pub type DentryWithInode = (Versioned, Option<Versioned>);
