//! Read-only files that a mount of a whole volume shows although the volume does not have them, like those of `/proc`: the directory `.tenon` in the root, and
//! everything below it.
//!
//! Owns their inode numbers, which no inode of a volume has, and their open files. An implementation of [`VirtualFiles`] decides which exist, and
//! what they contain.
//!
//! Refuses every change. The root does not list `.tenon`, so that programs that copy or search the whole volume do not find it. The kernel caches nothing of these
//! files, and their length is 0.

use crate::reply::{AttrWithTtl, OpenFile};
use bytes::Bytes;
use fuser::{FileHandle, FopenFlags};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use vfs::{Attr, Error, Ino, Kind, Timestamp};

/// The bit that only numbers of virtual files and their handles have. The next higher bit is that of the directories of views.
const VIRTUAL_BIT: u64 = 1 << 62;

/// The inode number in a listing for a file whose number is not known: `FUSE_UNKNOWN_INO` of `linux/fuse.h`.
const UNKNOWN_INO: Ino = Ino(0xffff_ffff);

/// The virtual files of a mount. Paths are lists of names below `.tenon`, which is the empty path. Methods may block.
pub trait VirtualFiles: fmt::Debug + Send + Sync {
    /// Returns the entry at a path; `None` if there is none.
    fn find(&self, path: &[String]) -> Option<VirtualEntry>;

    /// Returns the entries of a directory.
    fn list(&self, path: &[String]) -> Vec<(String, VirtualEntry)>;

    /// Returns the content of a file as it is now; `None` if the file does not exist any more.
    fn read(&self, path: &[String]) -> Option<Bytes>;
}

/// A virtual file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VirtualEntry {
    /// Whether it is a directory.
    pub is_directory: bool,
    /// The permission bits. The owner is the user of this process.
    pub mode: u16,
    /// The time of the last change.
    pub modified: Timestamp,
}

/// The virtual files of one mount, as its kernel knows them.
#[derive(Debug)]
pub(crate) struct VirtualTree {
    files: Arc<dyn VirtualFiles>,
    owner: (u32, u32),
    nodes: Mutex<Nodes>,
    handles: Mutex<Handles>,
}

type Path = Arc<[String]>;

/// Files and directories to which the kernel has references.
#[derive(Debug, Default)]
struct Nodes {
    by_ino: HashMap<Ino, Node>,
    by_path: HashMap<Path, Ino>,
    /// Number of nodes made so far.
    made: u64,
}

#[derive(Debug)]
struct Node {
    path: Path,
    /// Number of references of the kernel.
    references: u64,
}

/// Open files and directories, by handle.
#[derive(Debug, Default)]
struct Handles {
    files: HashMap<u64, OpenText>,
    directories: HashMap<u64, OpenListing>,
    /// Number of handles made so far.
    made: u64,
}

/// An open file.
#[derive(Debug, Clone)]
struct OpenText {
    path: Path,
    /// The content at the last read of its beginning.
    text: Bytes,
}

/// An open directory with its entries at the time of the open, of which the first two are `.` and `..`.
#[derive(Debug, Clone)]
struct OpenListing {
    path: Path,
    entries: Arc<[(String, VirtualEntry)]>,
}

/// An entry of an open directory.
#[derive(Debug)]
pub(crate) struct ListedEntry {
    pub(crate) name: String,
    pub(crate) cookie: u64,
    pub(crate) attr: Attr,
}

/// Returns whether a number is that of a virtual file, or of its handle.
pub(crate) fn is_virtual(number: u64) -> bool {
    number >> 62 == 1
}

impl VirtualTree {
    pub(crate) fn new(files: Arc<dyn VirtualFiles>) -> Self {
        let owner = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        Self { files, owner, nodes: Mutex::default(), handles: Mutex::default() }
    }

    /// Finds an entry of a directory, or `.tenon` in the root. The kernel gets a reference to it.
    pub(crate) async fn look_up(&self, parent: Ino, name: &[u8]) -> Result<AttrWithTtl, Error> {
        let path: Path = match is_virtual(parent.0) {
            true => self.path_below(parent, name)?,
            false => Arc::default(),
        };
        let found = self.find(&path).await?;
        Ok(uncached(self.attr(self.nodes().refer(path), found)))
    }

    /// Drops references of the kernel.
    pub(crate) fn forget(&self, ino: Ino, count: u64) {
        self.nodes().forget(ino, count);
    }

    pub(crate) async fn attributes(&self, ino: Ino) -> Result<AttrWithTtl, Error> {
        let path = self.nodes().path(ino)?;
        Ok(uncached(self.attr(ino, self.find(&path).await?)))
    }

    /// Opens a file for reading.
    pub(crate) async fn open(&self, ino: Ino, flags: i32) -> Result<OpenFile, Error> {
        if flags & libc::O_ACCMODE != libc::O_RDONLY {
            return Err(READ_ONLY);
        }
        let path = self.nodes().path(ino)?;
        self.find(&path).await?;
        let handle = self.handles().add_file(OpenText { path, text: Bytes::new() });
        // Direct I/O passes each read, whatever length the kernel knows.
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH;
        Ok(OpenFile { handle: FileHandle(handle), flags })
    }

    /// Reads from an open file. A read of the beginning gets the content of this moment, and further reads continue in it.
    pub(crate) async fn read(&self, handle: u64, offset: u64, size: usize) -> Result<Bytes, Error> {
        let OpenText { path, mut text } = self.handles().files.get(&handle).cloned().ok_or(BAD_HANDLE)?;
        if offset == 0 {
            text = self.ask(move |files| files.read(&path)).await?.ok_or(NOT_FOUND)?;
            if let Some(open) = self.handles().files.get_mut(&handle) {
                open.text = text.clone();
            }
        }
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
        Ok(text.slice(from..from.saturating_add(size).min(text.len())))
    }

    pub(crate) async fn open_directory(&self, ino: Ino) -> Result<OpenFile, Error> {
        let path = self.nodes().path(ino)?;
        let own = self.find(&path).await?;
        let asked = Arc::clone(&path);
        let listed = self.ask(move |files| files.list(&asked)).await?;
        let dots = [(".".to_owned(), own), ("..".to_owned(), own)];
        let entries = dots.into_iter().chain(listed).collect();
        let handle = self.handles().add_directory(OpenListing { path, entries });
        Ok(OpenFile { handle: FileHandle(handle), flags: FopenFlags::empty() })
    }

    /// Returns the entries of an open directory after a position. With `refers`, the kernel gets a reference to each except `.` and `..`; otherwise their inode
    /// numbers are not known.
    pub(crate) fn list(&self, handle: u64, from: u64, refers: bool) -> Result<Vec<ListedEntry>, Error> {
        let OpenListing { path, entries } =
            self.handles().directories.get(&handle).cloned().ok_or(BAD_HANDLE)?;
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        let rest = entries.iter().zip(1..).skip(from);
        let listed = rest.map(|((name, entry), cookie)| {
            let ino = match refers && !is_dot(name) {
                true => self.nodes().refer(below(&path, name.clone())),
                false => UNKNOWN_INO,
            };
            ListedEntry { name: name.clone(), cookie, attr: self.attr(ino, *entry) }
        });
        Ok(listed.collect())
    }

    /// Closes a file or directory.
    pub(crate) fn close(&self, handle: u64) {
        let mut handles = self.handles();
        handles.files.remove(&handle);
        handles.directories.remove(&handle);
    }

    fn path_below(&self, parent: Ino, name: &[u8]) -> Result<Path, Error> {
        let name = std::str::from_utf8(name).map_err(|_| NOT_FOUND)?;
        Ok(below(&self.nodes().path(parent)?, name.to_owned()))
    }

    async fn find(&self, path: &Path) -> Result<VirtualEntry, Error> {
        let path = Arc::clone(path);
        self.ask(move |files| files.find(&path)).await?.ok_or(NOT_FOUND)
    }

    /// Asks the implementation, on a thread that may block.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn VirtualFiles) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let files = Arc::clone(&self.files);
        let answer = tokio::task::spawn_blocking(move || question(&*files)).await;
        answer.map_err(|error| Error::Cache(io::Error::other(error)))
    }

    fn attr(&self, ino: Ino, entry: VirtualEntry) -> Attr {
        let at = entry.modified;
        let (kind, nlink) = if entry.is_directory { (Kind::Directory, 2) } else { (Kind::File, 1) };
        let ((uid, gid), mode) = (self.owner, entry.mode);
        let (rdev, size_bytes, blocks) = (0, 0, 0);
        Attr {
            ino,
            kind,
            mode,
            uid,
            gid,
            nlink,
            rdev,
            size_bytes,
            blocks,
            atime: at,
            mtime: at,
            ctime: at,
            btime: at,
        }
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Nodes {
    /// Adds a reference of the kernel to a path.
    fn refer(&mut self, path: Path) -> Ino {
        let ino = *self.by_path.entry(path.clone()).or_insert_with(|| {
            self.made += 1;
            Ino(VIRTUAL_BIT | self.made)
        });
        self.by_ino.entry(ino).or_insert(Node { path, references: 0 }).references += 1;
        ino
    }

    fn forget(&mut self, ino: Ino, count: u64) {
        let Some(node) = self.by_ino.get_mut(&ino) else { return };
        node.references = node.references.saturating_sub(count);
        if node.references == 0 {
            self.by_path.remove(&node.path);
            self.by_ino.remove(&ino);
        }
    }

    fn path(&self, ino: Ino) -> Result<Path, Error> {
        self.by_ino.get(&ino).map(|node| Arc::clone(&node.path)).ok_or(NOT_FOUND)
    }
}

impl Handles {
    fn add_file(&mut self, file: OpenText) -> u64 {
        let handle = self.number();
        self.files.insert(handle, file);
        handle
    }

    fn add_directory(&mut self, directory: OpenListing) -> u64 {
        let handle = self.number();
        self.directories.insert(handle, directory);
        handle
    }

    fn number(&mut self) -> u64 {
        self.made += 1;
        VIRTUAL_BIT | self.made
    }
}

/// The error of a change.
pub(crate) const READ_ONLY: Error =
    Error::Errno { errno: libc::EPERM, what: "the files below '.tenon' cannot be changed" };

/// The error of an extended attribute, of which virtual files have none.
pub(crate) const NO_ATTRIBUTE: Error =
    Error::Errno { errno: libc::ENODATA, what: "a file below '.tenon' has no extended attributes" };

const NOT_FOUND: Error = Error::Errno { errno: libc::ENOENT, what: "no such file below '.tenon'" };

const BAD_HANDLE: Error =
    Error::Errno { errno: libc::EBADF, what: "invalid handle of a file below '.tenon'" };

/// Returns attributes that the kernel must not cache.
fn uncached(attr: Attr) -> AttrWithTtl {
    AttrWithTtl { attr, ttl: Duration::ZERO }
}

fn below(path: &Path, name: String) -> Path {
    path.iter().cloned().chain([name]).collect()
}

/// Returns whether an entry of this name is `.` or `..`, for which the kernel gets no reference.
pub(crate) fn is_dot(name: &str) -> bool {
    matches!(name, "." | "..")
}
