//! Trees of files: a directory, mounted or not, or the objects of a bucket below a prefix.
//!
//! Owns their one form ([`Entry`]), their walk in the order of keys, copies of files between them, and removals. Commands compare,
//! sum up and copy trees without knowing which form they have.
//!
//! Invariant: a walk returns entries in the byte order of their paths, where the path of a directory ends in `/`. So
//! a directory and a bucket with the same files return them in the same order, and two trees can be merged without
//! holding either in memory.

mod directory_walk;
mod entry;
mod entry_stream;
mod file_copy;
mod location;
mod remove;
mod temporary_file;

pub(crate) use entry::{Entry, EntryKind};
pub(crate) use entry_stream::{EntryStream, Item};
pub(crate) use file_copy::{copy_file, has_same_content, make_directory};
pub(crate) use location::Location;
pub(crate) use remove::remove_entry;
pub(crate) use temporary_file::{TEMPORARY_PREFIX, is_abandoned};
