//! Names that a cache of directory entries has to drop.

use super::naming::EntryName;

/// A directory with stale names, for a cache of directory entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stale {
    /// Path of the directory from the root of the tree.
    pub directory: Vec<EntryName>,
    /// Names that changed: they lead to another file or directory, to a file that changed, or to nothing. New names
    /// are not included. `None`: every name in and below the directory.
    pub names: Option<Vec<EntryName>>,
}
