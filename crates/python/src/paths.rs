//! Resolution of paths in a volume, with errors that contain the path.
//!
//! Paths are bytes, relative to the root of the volume, with or without a leading `/`.

use crate::failure::{Failure, Result};
use crate::tree;
use std::sync::Arc;
use vfs::paths::OpenOptions;
use vfs::{Filesystem, Ino, Opened, paths};

pub(crate) use paths::{Node, split};

/// Returns the inode at a path. `follows` says whether a symbolic link at the end of the path is followed.
pub(crate) async fn resolve(fs: &Arc<Filesystem>, path: &[u8], follows: bool) -> Result<Node> {
    let found = paths::resolve(fs, Ino::ROOT, path, follows).await;
    found.map_err(|error| Failure::from(error).at(path))
}

/// Returns the directory that contains a path, and the last name of the path.
pub(crate) async fn resolve_parent<'p>(fs: &Arc<Filesystem>, path: &'p [u8]) -> Result<(Node, &'p [u8])> {
    let found = paths::resolve_parent(fs, Ino::ROOT, path).await;
    found.map_err(|error| Failure::from(error).at(path))
}

/// Opens the file at a path; with `O_CREAT`, creates it if it is missing.
pub(crate) async fn open(fs: &Arc<Filesystem>, path: &[u8], flags: i32, mode: u16) -> Result<(Node, Opened)> {
    let options = OpenOptions { flags, mode, caller: tree::caller() };
    let opened = paths::open(fs, Ino::ROOT, path, options).await;
    opened.map_err(|error| Failure::from(error).at(path))
}

/// Returns the path as a key; `None` if it must be resolved first, because it has empty names, `.` or `..`.
pub(crate) fn as_key(path: &[u8]) -> Option<&[u8]> {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..");
    path.split(|byte| *byte == b'/').all(is_name).then_some(path)
}
