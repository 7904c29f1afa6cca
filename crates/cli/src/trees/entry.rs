//! An entry of a tree.

use std::cmp::Ordering;
use store::{ETag, Timestamp};

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum EntryKind {
    File,
    Directory,
    Symlink,
    /// A device, pipe or socket.
    Special,
}

impl EntryKind {
    /// Returns the name in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Symlink => "symlink",
            Self::Special => "special",
        }
    }
}

/// A file or directory of a tree. In a bucket, each object is a file, and a key that ends in `/` a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Path from the root of the tree, without slashes at its ends; empty for the root itself.
    pub(crate) path: Box<[u8]>,
    pub(crate) kind: EntryKind,
    /// Length of a file in bytes.
    pub(crate) size_bytes: u64,
    pub(crate) modified: Option<Timestamp>,
    /// Etag of an object.
    pub(crate) etag: Option<ETag>,
    /// Device and inode of a file with several names.
    pub(crate) shared_inode: Option<(u64, u64)>,
}

impl Entry {
    /// Returns the entry of a tree that is a single symbolic link.
    pub(crate) fn link() -> Self {
        let (path, kind) = (Box::default(), EntryKind::Symlink);
        Self { path, kind, size_bytes: 0, modified: None, etag: None, shared_inode: None }
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == EntryKind::Directory
    }

    /// Returns the path as text for people.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }

    /// Returns whether another entry is below this directory.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        let rest = other.path.strip_prefix(&*self.path);
        self.is_directory() && rest.is_some_and(|rest| self.path.is_empty() || rest.starts_with(b"/"))
    }

    /// Compares the paths in the order of a walk.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        compare_names((&self.path, self.is_directory()), (&other.path, other.is_directory()))
    }

    /// Returns the number of directories above the entry in its tree.
    pub(crate) fn depth(&self) -> usize {
        if self.path.is_empty() { 0 } else { self.path.iter().filter(|byte| **byte == b'/').count() + 1 }
    }
}

/// Compares names as the keys that they have in a bucket: those of directories end in `/`.
pub(super) fn compare_names(one: (&[u8], bool), other: (&[u8], bool)) -> Ordering {
    let key = |(name, is_directory): (&[u8], bool)| {
        let end: &[u8] = if is_directory { b"/" } else { b"" };
        [name, end].concat()
    };
    let common = one.0.len().min(other.0.len());
    match one.0[..common].cmp(&other.0[..common]) {
        Ordering::Equal => key((&one.0[common..], one.1)).cmp(&key((&other.0[common..], other.1))),
        different => different,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_keys() {
        let mut names: Vec<(&[u8], bool)> = vec![
            (b"a", true),
            (b"a.txt", false),
            (b"a", false),
            (b"a0", false),
            (b"a/b", false),
            (b"a-", true),
        ];
        names.sort_by(|one, other| compare_names(*one, *other));
        let keys: Vec<String> = names
            .iter()
            .map(|(name, is_dir)| String::from_utf8_lossy(name).into_owned() + if *is_dir { "/" } else { "" })
            .collect();
        assert_eq!(keys, ["a", "a-/", "a.txt", "a/", "a/b", "a0"]);
        assert!(keys.is_sorted());
    }
}
