//! The numbered invariants of the tables, as predicates over a reader, and [`fsck`], which checks them all.
//!
//! The invariants hold between any two commits. Numbers are never reused, since reports, tests and documents refer to them.
//! An inode's *home* is its primary name, the one from which path naming derives the object key.
//!
//! | number | invariant |
//! |---|---|
//! | 1 | the root exists, is a directory and has no home |
//! | 2 | every dentry refers to an inode of the dentry's type |
//! | 3 | every dentry is in a directory |
//! | 4 | the link count is the number of names, or for a directory 2 plus the number of its subdirectories |
//! | 5 | an inode's home is a dentry that refers to the inode |
//! | 6 | additional names (`H`) are exactly the dentries that are not a home |
//! | 7 | exactly the inodes without links have an orphan record, and they have no home |
//! | 8 | extents ascend, do not overlap and end within the size; an extent of length 0 is the only one; a directory's size is 0 |
//! | 9 | extent rows belong to inodes with more than four extents, and match the inode's summary |
//! | 10 | the homes of a directory, its parent and so on lead to the root |
//! | 11 | exactly the set-group-id directories have a set-group record (`S`) |
//! | 12 | extended attributes belong to an inode |
//! | 13 | the number of every inode has been leased |
//! | 14 | every record can be decoded |
//! | 15 | an access ACL agrees with the mode and is not equivalent to it; only directories have a default ACL |
//! | 16 | a quota's usage equals the contents of the volume or the tree, and the directories of trees are marked (`T`) |
//! | 17 | waiting exports (`W`) belong to an inode |
//! | 18 | exactly the inodes whose records have a summary of extent rows have object use counts (`R`), which match the rows |

mod check;
mod directories;
mod family_rows;
mod findings;
mod names;
mod quotas;

use crate::FsError;
use crate::engine::Reader;
use std::fmt;

pub use check::fsck;

/// A place where the tables break an invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The number of the invariant in the list of this module.
    pub number: u32,
    /// A description of the violation, in one line.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant {}: {}", self.number, self.what)
    }
}

/// Checks the invariants. Fails with one error that describes all violations.
pub fn check(reader: &(impl Reader + ?Sized)) -> Result<(), FsError> {
    let violations = fsck(reader)?;
    if violations.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = violations.iter().map(Violation::to_string).collect();
    Err(FsError::Corrupt(lines.join("; ")))
}
