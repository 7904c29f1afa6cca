//! The numbered invariants of the tables, as predicates over a reader, and [`fsck`], which runs them all.
//!
//! They hold between any two commits. Numbers are never reused; reports, tests and documents refer to them.
//!
//! | number | what holds |
//! |---|---|
//! | 1 | the root exists, is a directory and has no home |
//! | 2 | every dentry leads to an inode of its kind |
//! | 3 | every dentry is in a directory |
//! | 4 | the link count is the number of names; of a directory 2 + its subdirectories |
//! | 5 | an inode's home is a dentry that leads back to it |
//! | 6 | further names (`H`) are exactly the dentries that are no home |
//! | 7 | exactly the inodes without links have an orphan record, and they have no home |
//! | 8 | extents ascend, do not overlap, end within the size, and one of length 0 stands alone; a directory's size is 0 |
//! | 9 | extent rows belong to inodes with more than four extents, and are what the inode's summary says |
//! | 10 | every directory leads to the root by its homes |
//! | 11 | set-group records (`S`) are exactly those of set-group-id directories |
//! | 12 | extended attributes belong to an inode |
//! | 13 | every inode number has been leased |
//! | 14 | every record can be decoded |
//! | 15 | an access ACL says what the mode says and more; only directories have a default one |
//! | 16 | a quota counts what there is in the volume or its tree, and the trees' directories are marked (`T`) |
//! | 17 | waiting exports (`W`) belong to an inode |
//! | 18 | uses of objects (`R`) are counted for exactly the inodes whose records have a summary of extent rows, and are as many as the rows say |

mod check;

use crate::FsError;
use crate::engine::Reader;
use std::fmt;

pub use check::fsck;

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant's number.
    pub number: u32,
    /// What breaks it, in one line.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant {}: {}", self.number, self.what)
    }
}

/// Whether the invariants hold; the violations in one error if not.
pub fn check(reader: &(impl Reader + ?Sized)) -> Result<(), FsError> {
    let violations = fsck(reader)?;
    if violations.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = violations.iter().map(Violation::to_string).collect();
    Err(FsError::Corrupt(lines.join("; ")))
}
