//! Resolution of paths to inodes, for front ends that get paths instead of inodes.
//!
//! Paths are bytes, relative to a directory of the front end, its root, with or without a leading `/`. `.` and `..` are resolved here, and
//! `..` does not lead above the root. Symbolic links are followed; an absolute target is relative to the root, too.

use crate::{Attr, Caller, Error, Filesystem, Opened, Result};
use meta::{Ino, Kind};
use std::collections::VecDeque;
use std::sync::Arc;

/// Maximum number of symbolic links on the way to a file, as in Linux.
const LINKS_MAX: usize = 40;
/// Maximum number of attempts to open or create a file that other programs create and remove at the same time.
const OPEN_ATTEMPTS_MAX: usize = 16;

/// An inode with its attributes. It stays known to the file system until this is dropped.
#[derive(Debug)]
pub struct Node {
    fs: Arc<Filesystem>,
    /// The attributes as they were when the path was resolved.
    pub attr: Attr,
    /// Whether the file system counts a reference for this node.
    has_reference: bool,
}

impl Node {
    /// Takes over one reference that the file system has counted for a front end.
    pub fn new(fs: &Arc<Filesystem>, attr: Attr) -> Self {
        Self { fs: Arc::clone(fs), attr, has_reference: true }
    }

    /// Returns the root of a front end. No reference is needed, because the root is not removed while it is used.
    async fn root(fs: &Arc<Filesystem>, root: Ino) -> Result<Self> {
        Ok(Self { fs: Arc::clone(fs), attr: fs.getattr(root).await?, has_reference: false })
    }

    /// Returns the inode number.
    pub fn ino(&self) -> Ino {
        self.attr.ino
    }

    /// Returns the inode whose reference the caller takes over: it must be forgotten once ([`Filesystem::forget`]). `None` for a root, to which
    /// no reference is counted.
    pub fn into_reference(mut self) -> Option<Ino> {
        std::mem::take(&mut self.has_reference).then_some(self.attr.ino)
    }

    /// Returns whether the inode is a directory.
    pub fn is_directory(&self) -> bool {
        self.attr.kind == Kind::Directory
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.has_reference {
            self.fs.forget(self.attr.ino, 1);
        }
    }
}

/// Returns the inode at a path below `root`. `follows` says whether a symbolic link at the end of the path is followed.
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

/// How a file at a path is opened.
#[derive(Debug, Clone, Copy)]
pub struct OpenOptions {
    /// Flags of open(2): access, `O_CREAT`, `O_EXCL`, `O_TRUNC` and `O_APPEND`.
    pub flags: i32,
    /// Permission bits of a file that is created.
    pub mode: u16,
    /// Owner of a file that is created.
    pub caller: Caller,
}

/// Opens the file at a path below `root`; with `O_CREAT`, creates it if it is missing. Starts again if another program creates or removes the
/// file meanwhile.
pub async fn open(
    fs: &Arc<Filesystem>,
    root: Ino,
    path: &[u8],
    options: OpenOptions,
) -> Result<(Node, Opened)> {
    let flags = options.flags;
    if flags & libc::O_CREAT == 0 {
        return open_node(fs, resolve(fs, root, path, true).await?, flags).await;
    }
    let is_overtaken = |error: &Error| {
        error.errno() == libc::ESTALE || (error.errno() == libc::EEXIST && flags & libc::O_EXCL == 0)
    };
    let mut attempts = 1;
    loop {
        match open_or_create(fs, root, path, options).await {
            Err(error) if is_overtaken(&error) && attempts < OPEN_ATTEMPTS_MAX => attempts += 1,
            outcome => return outcome,
        }
    }
}

async fn open_or_create(
    fs: &Arc<Filesystem>,
    root: Ino,
    path: &[u8],
    options: OpenOptions,
) -> Result<(Node, Opened)> {
    let OpenOptions { flags, mode, caller } = options;
    let (parent, name) = resolve_parent(fs, root, path).await?;
    if flags & libc::O_EXCL == 0 {
        match fs.lookup(parent.ino(), name).await {
            Ok(attr) => {
                let found = Node::new(fs, attr);
                let is_link = found.attr.kind == Kind::Symlink;
                let node = if is_link { resolve(fs, root, path, true).await? } else { found };
                return open_node(fs, node, flags & !libc::O_CREAT).await;
            }
            Err(error) if error.errno() == libc::ENOENT => {}
            Err(error) => return Err(error),
        }
    }
    let (attr, opened) = fs.create(caller, parent.ino(), name, mode, flags).await?;
    Ok((Node::new(fs, attr), opened))
}

async fn open_node(fs: &Arc<Filesystem>, node: Node, flags: i32) -> Result<(Node, Opened)> {
    let opened = fs.open(node.ino(), flags).await?;
    Ok((node, opened))
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
