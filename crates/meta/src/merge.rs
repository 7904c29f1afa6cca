//! Merges: changes of an inode record that commute, so that two of them never conflict.

use crate::codec::{self, DecodeError};
use crate::engine::Value;
use store::Timestamp;

/// What an entry that comes or goes does to its directory: a sum and two maxima.
///
/// `a.then(b)` applied once equals `a` and then `b`, and `b` and then `a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merge {
    /// Added to the link count.
    pub nlink: i32,
    /// The modification time becomes at least this.
    pub mtime: Timestamp,
    /// The change time becomes at least this.
    pub ctime: Timestamp,
}

impl Merge {
    /// Changes nothing.
    pub const NONE: Merge = Merge { nlink: 0, mtime: Timestamp(i64::MIN), ctime: Timestamp(i64::MIN) };

    /// An entry came or went at `now`, and with it `nlink` subdirectories.
    pub fn entry(now: Timestamp, nlink: i32) -> Self {
        Self { nlink, mtime: now, ctime: now }
    }

    /// Only the link count.
    pub fn links(nlink: i32) -> Self {
        Self { nlink, ..Self::NONE }
    }

    /// Only the change time.
    pub fn changed(now: Timestamp) -> Self {
        Self { ctime: now, ..Self::NONE }
    }

    /// Both merges as one.
    pub fn then(self, other: Self) -> Self {
        Self {
            nlink: self.nlink.saturating_add(other.nlink),
            mtime: self.mtime.max(other.mtime),
            ctime: self.ctime.max(other.ctime),
        }
    }

    /// The inode record after the merge; this is what an engine's merge operator calls.
    ///
    /// Fails if the bytes are no inode record or the link count would leave its range.
    pub fn apply(self, record: &[u8]) -> Result<Value, DecodeError> {
        codec::merge_inode(record, self)
    }
}
