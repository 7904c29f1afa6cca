//! Paths: from a path to the inode that it leads to, for front ends that get paths instead of inodes.
//!
//! Paths are bytes, relative to a directory of the front end, its root, with or without a leading `/`. `.` and `..` are resolved here, and
//! `..` does not lead above the root. Symbolic links are followed; an absolute target is relative to the root, too.

use crate::{Attr, Error, Filesystem, Result};
use meta::{Ino, Kind};
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of symbolic links on the way to a file, as in Linux.
const LINKS_MAX: usize = 40;

/// An inode with its attributes. It stays known to the file system until this is dropped.
#[derive(Debug)]
pub struct Node {
    fs: Arc<Filesystem>,
    /// The attributes as they were when the path was resolved.
    pub attr: Attr,
    /// Whether the file system has counted a reference for this node.
    is_counted: bool,
}

impl Node {
    /// Takes over one reference that the file system has counted for a front end.
    pub fn new(fs: &Arc<Filesystem>, attr: Attr) -> Self {
        Self { fs: Arc::clone(fs), attr, is_counted: true }
    }

    /// Returns the root of a front end, which no one removes while it is used.
    async fn root(fs: &Arc<Filesystem>, root: Ino) -> Result<Self> {
        Ok(Self { fs: Arc::clone(fs), attr: fs.getattr(root).await?, is_counted: false })
    }

    /// Returns the inode number.
    pub fn ino(&self) -> Ino {
        self.attr.ino
    }

    /// Returns the inode whose reference the caller takes over: it must be forgotten once ([`Filesystem::forget`]). `None` for a root, to which
    /// no reference is counted.
    pub fn into_reference(mut self) -> Option<Ino> {
        std::mem::take(&mut self.is_counted).then_some(self.attr.ino)
    }

    /// Returns whether the inode is a directory.
    pub fn is_directory(&self) -> bool {
        self.attr.kind == Kind::Directory
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.is_counted {
            self.fs.forget(self.attr.ino, 1);
        }
    }
}

/// Returns the inode at a path below `root`. A symbolic link at its end is followed if `follows` says so.
pub async fn resolve(fs: &Arc<Filesystem>, root: Ino, path: &[u8], follows: bool) -> Result<Node> {
    let mut names: VecDeque<Vec<u8>> = names_of(path).collect();
    let (mut above, mut links) = (Vec::new(), 0);
    let mut node = Node::root(fs, root).await?;
    while let Some(name) = names.pop_front() {
        if !node.is_directory() {
            return Err(Error::NOT_DIRECTORY);
        }
        if name == b".." {
            node = above.pop().unwrap_or(node);
            continue;
        }
        let found = Node::new(fs, fs.lookup(node.ino(), &name).await?);
        if found.attr.kind != Kind::Symlink || (names.is_empty() && !follows) {
            above.push(std::mem::replace(&mut node, found));
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(Error::new(libc::ELOOP, "too many symbolic links"));
        }
        let target = fs.readlink(found.ino()).await?;
        if target.starts_with(b"/") {
            node = Node::root(fs, root).await?;
            above.clear();
        }
        names_of(&target).rev().for_each(|name| names.push_front(name));
    }
    Ok(node)
}

/// Returns the directory that contains a path below `root`, and the last name of the path. EINVAL for a path without a name at its end.
pub async fn resolve_parent<'p>(fs: &Arc<Filesystem>, root: Ino, path: &'p [u8]) -> Result<(Node, &'p [u8])> {
    let (parent, name) = split(path);
    if matches!(name, b"" | b"." | b"..") {
        return Err(Error::new(libc::EINVAL, "the path has no last name"));
    }
    let parent = resolve(fs, root, parent, true).await?;
    if !parent.is_directory() {
        return Err(Error::NOT_DIRECTORY);
    }
    Ok((parent, name))
}

/// Splits a path into the part before its last name, and that name.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let path = &path[..end];
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

fn names_of(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> + '_ {
    path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")).map(<[u8]>::to_vec)
}
