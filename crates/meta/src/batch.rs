//! Records of batches: private namespaces that were begun, and what became of them.

use crate::{Ino, Moment};
use bytes::Bytes;
use std::fmt;
use std::num::ParseIntError;
use std::ops::Range;
use std::str::FromStr;
use store::Timestamp;

/// The identity of a batch: the first of the inode numbers that are leased for it. A lease serves one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for BatchId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

/// The record of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The directory whose subtree is in batch mode.
    pub dir: Ino,
    /// The inode numbers that are leased for the batch.
    pub lease: Range<Ino>,
    /// Time of the beginning.
    pub began: Timestamp,
    /// The moment that all ops of the batch have.
    pub at: Moment,
    /// The outcome of the merge; `None` while the batch is open.
    pub outcome: Option<BatchOutcome>,
}

impl Batch {
    /// Returns the identity of the batch.
    pub fn id(&self) -> BatchId {
        BatchId(self.lease.start.0)
    }
}

/// The outcome of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchOutcome {
    /// Time of the merge.
    pub merged: Timestamp,
    /// Number of ops that were added.
    pub accepted: u64,
    /// Number of ops that were not added, or only under another name.
    pub refused: u64,
}

/// The record of an op that a merge has not added, or has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedOp {
    /// The encoded op.
    pub op: Bytes,
    /// The reason, in one line.
    pub why: Box<str>,
    /// The inode that keeps the bytes under another name.
    pub kept: Option<Ino>,
}
