//! Paths inside a volume, with the failures that name them.
//!
//! Paths are bytes, relative to the root of the volume, with or without a leading `/`.

use crate::failure::{Failure, Result};
use std::sync::Arc;
use vfs::{Filesystem, Ino, paths};

pub(crate) use paths::{Node, split};

/// Returns the inode at a path. A symbolic link at its end is followed if `follows` says so.
pub(crate) async fn resolve(fs: &Arc<Filesystem>, path: &[u8], follows: bool) -> Result<Node> {
    let found = paths::resolve(fs, Ino::ROOT, path, follows).await;
    found.map_err(|error| Failure::from(error).at(path))
}

/// Returns the directory that contains a path, and the last name of the path.
pub(crate) async fn resolve_parent<'p>(fs: &Arc<Filesystem>, path: &'p [u8]) -> Result<(Node, &'p [u8])> {
    let found = paths::resolve_parent(fs, Ino::ROOT, path).await;
    found.map_err(|error| Failure::from(error).at(path))
}

/// Returns the path as it is as a key; `None` if it must be resolved, because it has empty names, `.` or `..`.
pub(crate) fn as_key(path: &[u8]) -> Option<&[u8]> {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..");
    path.split(|byte| *byte == b'/').all(is_name).then_some(path)
}
