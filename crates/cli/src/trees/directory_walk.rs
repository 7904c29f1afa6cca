//! The walk of a directory, in the order of keys.

use super::entry::{Entry, EntryKind, compare_names};
use super::entry_stream::Item;
use std::fs::{self, Metadata};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use store::Timestamp;

/// A walk that is in progress. Memory is for the names of the directories on the way to the present entry.
pub(super) struct DirectoryWalk {
    root: PathBuf,
    levels: Vec<Level>,
    /// Whether the root is still to be returned.
    is_new: bool,
}

/// The names of a directory that are left.
struct Level {
    /// Path of the directory below the root of the walk.
    path: Vec<u8>,
    names: std::vec::IntoIter<(Box<[u8]>, bool)>,
}

impl DirectoryWalk {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), levels: Vec::new(), is_new: true }
    }

    fn full_path(&self, path: &[u8]) -> PathBuf {
        self.root.join(std::ffi::OsStr::from_bytes(path))
    }

    /// Returns an entry and, if it is a directory, continues with what is in it.
    fn visit(&mut self, path: Vec<u8>) -> Item {
        let full = if path.is_empty() { self.root.clone() } else { self.full_path(&path) };
        let found = if path.is_empty() { fs::metadata(&full) } else { fs::symlink_metadata(&full) };
        let entry = match found {
            Ok(metadata) => entry_of(path, &metadata),
            Err(error) => return Item::Unreadable(format!("{}: {error}", full.display())),
        };
        if entry.is_directory() {
            match names_in(&full) {
                Ok(names) => self.levels.push(Level { path: entry.path.to_vec(), names: names.into_iter() }),
                Err(error) => return Item::Unreadable(format!("{}: {error}", full.display())),
            }
        }
        Item::Entry(entry)
    }
}

impl Iterator for DirectoryWalk {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        if std::mem::take(&mut self.is_new) {
            return Some(self.visit(Vec::new()));
        }
        loop {
            let level = self.levels.last_mut()?;
            match level.names.next() {
                Some((name, _)) => {
                    let separator: &[u8] = if level.path.is_empty() { b"" } else { b"/" };
                    let path = [&level.path, separator, &name].concat();
                    return Some(self.visit(path));
                }
                None => drop(self.levels.pop()),
            }
        }
    }
}

/// Returns the names in a directory in the order of keys, each with whether it is a directory.
fn names_in(path: &Path) -> std::io::Result<Vec<(Box<[u8]>, bool)>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let is_directory = entry.file_type()?.is_dir();
        names.push((entry.file_name().into_vec().into_boxed_slice(), is_directory));
    }
    names.sort_unstable_by(|one, other| compare_names((&one.0, one.1), (&other.0, other.1)));
    Ok(names)
}

fn entry_of(path: Vec<u8>, metadata: &Metadata) -> Entry {
    let kind = match metadata.file_type() {
        kind if kind.is_dir() => EntryKind::Directory,
        kind if kind.is_file() => EntryKind::File,
        kind if kind.is_symlink() => EntryKind::Symlink,
        _ => EntryKind::Special,
    };
    let is_shared = metadata.nlink() > 1 && kind != EntryKind::Directory;
    Entry {
        path: path.into_boxed_slice(),
        kind,
        size_bytes: if kind == EntryKind::File { metadata.len() } else { 0 },
        modified: Some(Timestamp::from_secs(metadata.mtime(), metadata.mtime_nsec() as u32)),
        etag: None,
        shared_inode: is_shared.then(|| (metadata.dev(), metadata.ino())),
    }
}
