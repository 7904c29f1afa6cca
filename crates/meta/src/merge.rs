//! Merges: changes of a record that commute, so that two merges never conflict.

use crate::codec::{self, DecodeError};
use crate::quota::Usage;
use crate::record::Value;
use store::Timestamp;

/// A commutative change of a record. Applying `a.then(b)` equals applying `a` and then `b`, and also `b` and then `a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// The change of a directory's inode when an entry is added or removed.
    Inode {
        /// The number that is added to the link count.
        nlink: i32,
        /// Lower bound of the new modification time.
        mtime: Timestamp,
        /// Lower bound of the new change time.
        ctime: Timestamp,
    },
    /// An amount added to the usage of a quota.
    Usage(Usage),
}

impl Merge {
    /// Creates the merge for an entry added or removed at `now`; `nlink` is the change of the number of subdirectories.
    pub fn entry(now: Timestamp, nlink: i32) -> Self {
        Self::Inode { nlink, mtime: now, ctime: now }
    }

    /// Creates a merge of the link count only.
    pub fn links(nlink: i32) -> Self {
        Self::Inode { nlink, mtime: Timestamp(i64::MIN), ctime: Timestamp(i64::MIN) }
    }

    /// Creates a merge of the change time only.
    pub fn changed(now: Timestamp) -> Self {
        Self::Inode { nlink: 0, mtime: Timestamp(i64::MIN), ctime: now }
    }

    /// Combines two merges into one.
    ///
    /// # Panics
    /// Panics if the merges are for different types of records, since a key has one record.
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
                assert!(
                    one == other,
                    "merges for different types of records under one key: {one:?}, {other:?}"
                );
                one
            }
        }
    }

    /// Returns the record after the merge. Engines call this as their merge operator.
    ///
    /// Fails if the bytes are not a record of the merge's type, or a number would leave its range.
    pub fn apply(self, record: &[u8]) -> Result<Value, DecodeError> {
        match self {
            Self::Inode { nlink, mtime, ctime } => codec::merge_inode(record, nlink, mtime, ctime),
            Self::Usage(more) => codec::merge_quota(record, more),
        }
    }
}
