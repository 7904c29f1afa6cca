//! Merges: changes of a record that commute, so that two of them never conflict.

use crate::codec::{self, DecodeError};
use crate::engine::Value;
use crate::quota::Usage;
use store::Timestamp;

/// A change of the one record that a key has. `a.then(b)` applied once equals `a` and then `b`, and `b` and then `a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// What an entry that comes or goes does to its directory's inode: a sum and two maxima.
    Inode {
        /// Added to the link count.
        nlink: i32,
        /// The modification time becomes at least this.
        mtime: Timestamp,
        /// The change time becomes at least this.
        ctime: Timestamp,
    },
    /// So much more of a quota is used.
    Usage(Usage),
}

impl Merge {
    /// An entry came or went at `now`, and with it `nlink` subdirectories.
    pub fn entry(now: Timestamp, nlink: i32) -> Self {
        Self::Inode { nlink, mtime: now, ctime: now }
    }

    /// Only the link count.
    pub fn links(nlink: i32) -> Self {
        Self::Inode { nlink, mtime: Timestamp(i64::MIN), ctime: Timestamp(i64::MIN) }
    }

    /// Only the change time.
    pub fn changed(now: Timestamp) -> Self {
        Self::Inode { nlink: 0, mtime: Timestamp(i64::MIN), ctime: now }
    }

    /// Both merges as one.
    ///
    /// # Panics
    /// If they are of different records: a key has one.
    pub fn then(self, other: Self) -> Self {
        match (self, other) {
            (
                Self::Inode { nlink, mtime, ctime },
                Self::Inode { nlink: more, mtime: later, ctime: changed },
            ) => Self::Inode {
                nlink: nlink.saturating_add(more),
                mtime: mtime.max(later),
                ctime: ctime.max(changed),
            },
            (Self::Usage(one), Self::Usage(more)) => Self::Usage(one.plus(more)),
            (one, other) => {
                assert!(one == other, "merges of different records under one key: {one:?}, {other:?}");
                one
            }
        }
    }

    /// The record after the merge; this is what an engine's merge operator calls.
    ///
    /// Fails if the bytes are no such record, or a number would leave its range.
    pub fn apply(self, record: &[u8]) -> Result<Value, DecodeError> {
        match self {
            Self::Inode { nlink, mtime, ctime } => codec::merge_inode(record, nlink, mtime, ctime),
            Self::Usage(more) => codec::merge_quota(record, more),
        }
    }
}
