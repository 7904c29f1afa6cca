//! Directories: listings, walks, creation with the directories above, and removal of many names.

use crate::failure::{Failure, Outcome, Result};
use crate::parallel;
use crate::parts::Parts;
use crate::paths::{self, Node};
use crate::stat::Stat;
use futures_util::{StreamExt as _, stream};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;
use vfs::{Caller, Filesystem, Handle, Ino, Kind};

/// Entries of one call of `readdir`.
const PAGE_ENTRIES: usize = 1000;

/// Directories of a walk that are listed at the same time.
const LISTINGS_MAX: usize = 16;

/// Permission bits of directories that are made for the files in them.
pub(crate) const DIRECTORY_MODE: u16 = 0o777;

/// A name or path with its attributes.
pub(crate) type Entry = (OsString, Stat);

/// The usual umask. The umask of the process can be read only by setting it, which would disturb other threads.
const UMASK: u16 = 0o022;

/// Returns the process as the caller of operations.
pub(crate) fn caller() -> Caller {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    Caller { uid: uid.as_raw(), gid: gid.as_raw(), umask: UMASK }
}

/// Returns the entries of a directory, or the file itself.
pub(crate) async fn list(parts: Parts, path: Vec<u8>) -> Result<Vec<Entry>> {
    let directory = paths::resolve(&parts.fs, &path, true).await?;
    if directory.attr.kind != Kind::Directory {
        return Err(Failure::new(libc::ENOTDIR, "not a directory").at(&path));
    }
    let mut entries = Vec::new();
    let listed = read_directory(&parts.fs, directory.ino(), |name, node| {
        entries.push((OsString::from_vec(name), Stat::from(&node.attr)));
    });
    listed.await.map_err(|failure| failure.at(&path))?;
    Ok(entries)
}

/// Returns all entries below a directory, down to a depth, with their paths relative to it. Entries that vanish meanwhile are
/// left out. Does not follow symbolic links.
pub(crate) async fn walk(parts: Parts, path: Vec<u8>, depth_max: Option<usize>) -> Result<Vec<Entry>> {
    let top = paths::resolve(&parts.fs, &path, true).await?;
    if top.attr.kind != Kind::Directory {
        return Err(Failure::new(libc::ENOTDIR, "not a directory").at(&path));
    }
    let mut waiting = VecDeque::from([(Vec::new(), top, 1)]);
    let mut entries = Vec::new();
    while !waiting.is_empty() {
        let some = waiting.drain(..waiting.len().min(LISTINGS_MAX));
        let listings = some.map(|(prefix, directory, depth)| list_below(&parts.fs, prefix, directory, depth));
        let listed: Vec<_> = stream::iter(listings).buffered(LISTINGS_MAX).collect().await;
        for outcome in listed {
            let (found, directories) = outcome.map_err(|failure: Failure| failure.at(&path))?;
            entries.extend(found);
            let is_within = |depth: usize| depth_max.is_none_or(|max| depth <= max);
            waiting.extend(directories.into_iter().filter(|(_, _, depth)| is_within(*depth)));
        }
    }
    Ok(entries)
}

/// The entries of a directory of a walk, and those among them that are directories, with prefix and depth.
type Listed = (Vec<Entry>, Vec<(Vec<u8>, Node, usize)>);

async fn list_below(fs: &Arc<Filesystem>, prefix: Vec<u8>, directory: Node, depth: usize) -> Result<Listed> {
    let (mut entries, mut directories) = (Vec::new(), Vec::new());
    let listed = read_directory(fs, directory.ino(), |name, node| {
        let path = [&prefix[..], &name].concat();
        entries.push((OsString::from_vec(path.clone()), Stat::from(&node.attr)));
        if node.attr.kind == Kind::Directory {
            directories.push(([&path[..], b"/"].concat(), node, depth + 1));
        }
    });
    match listed.await {
        // The top must exist; another directory may be removed during the walk.
        Err(failure) if failure.errno() == libc::ENOENT && depth > 1 => Ok((Vec::new(), Vec::new())),
        outcome => outcome.map(|()| (entries, directories)),
    }
}

async fn read_directory(
    fs: &Arc<Filesystem>,
    directory: Ino,
    mut on_entry: impl FnMut(Vec<u8>, Node),
) -> Result<()> {
    let open = OpenDirectory { fs, handle: fs.opendir(directory).await? };
    let mut cookie = 0;
    loop {
        let listed = fs.readdir(open.handle, cookie, PAGE_ENTRIES, true).await?;
        let Some(last) = listed.last() else { return Ok(()) };
        cookie = last.cookie;
        for entry in listed {
            // `.` and `..` have no attributes.
            if let Some(attr) = entry.attr {
                on_entry(entry.name.to_vec(), Node::new(fs, attr));
            }
        }
    }
}

/// An open directory, which is closed when this is dropped.
struct OpenDirectory<'f> {
    fs: &'f Filesystem,
    handle: Handle,
}

impl Drop for OpenDirectory<'_> {
    fn drop(&mut self) {
        self.fs.releasedir(self.handle);
    }
}

/// Makes a directory. With `parents`, makes the directories above that are missing, too, and accepts a directory that exists.
pub(crate) async fn make_directory(parts: Parts, path: Vec<u8>, mode: u16, parents: bool) -> Result<()> {
    if parents {
        return make_directories(&parts.fs, &path, mode).await;
    }
    let (parent, name) = paths::resolve_parent(&parts.fs, &path).await?;
    make_one(&parts.fs, &parent, name, mode).await.map_err(|failure| failure.at(&path))
}

/// Makes a directory and those above that are missing. Accepts a directory that exists.
pub(crate) async fn make_directories(fs: &Arc<Filesystem>, path: &[u8], mode: u16) -> Result<()> {
    let (mut missing, mut rest) = (Vec::new(), path);
    loop {
        match paths::resolve(fs, rest, true).await {
            Ok(node) if node.attr.kind == Kind::Directory => break,
            Ok(_) if missing.is_empty() => {
                return Err(Failure::new(libc::EEXIST, "the name exists already").at(path));
            }
            Ok(_) => return Err(Failure::new(libc::ENOTDIR, "not a directory").at(path)),
            Err(failure) if failure.errno() == libc::ENOENT => {
                missing.push(rest);
                rest = paths::split(rest).0;
            }
            Err(failure) => return Err(failure),
        }
    }
    for path in missing.into_iter().rev() {
        let (parent, name) = paths::resolve_parent(fs, path).await?;
        match make_one(fs, &parent, name, mode).await {
            // Another task or process made it.
            Err(failure) if failure.errno() == libc::EEXIST => {}
            outcome => outcome.map_err(|failure| failure.at(path))?,
        }
    }
    Ok(())
}

async fn make_one(fs: &Arc<Filesystem>, parent: &Node, name: &[u8], mode: u16) -> Result<()> {
    let made = fs.mkdir(caller(), parent.ino(), name, mode).await?;
    drop(Node::new(fs, made));
    Ok(())
}

/// Removes a file, or an empty directory if `is_directory` says so.
pub(crate) async fn remove(parts: Parts, path: Vec<u8>, is_directory: bool) -> Result<()> {
    let (parent, name) = paths::resolve_parent(&parts.fs, &path).await?;
    let removed = match is_directory {
        true => parts.fs.rmdir(parent.ino(), name).await,
        false => parts.fs.unlink(parent.ino(), name).await,
    };
    removed.map_err(|error| Failure::from(error).at(&path))
}

/// Removes files, many at a time. Returns the outcome of each.
pub(crate) async fn remove_files(parts: Parts, paths: Vec<Vec<u8>>) -> Result<Vec<Outcome<()>>> {
    Ok(parallel::each(paths, move |path| remove(parts.clone(), path, false)).await)
}

/// Removes a directory and everything below it.
pub(crate) async fn remove_tree(parts: Parts, path: Vec<u8>) -> Result<()> {
    let found = walk(parts.clone(), path.clone(), None).await?;
    let below = |name: OsString| [&path[..], b"/", &name.into_vec()].concat();
    let (directories, files): (Vec<Entry>, Vec<Entry>) =
        found.into_iter().partition(|(_, stat)| stat.is_directory());
    let removed =
        remove_files(parts.clone(), files.into_iter().map(|(name, _)| below(name)).collect()).await?;
    for Outcome(outcome) in removed {
        or_missing(outcome)?;
    }
    // A walk returns a directory before those in it.
    for (name, _) in directories.into_iter().rev() {
        or_missing(remove(parts.clone(), below(name), true).await)?;
    }
    match paths::as_key(&path) {
        Some(_) => or_missing(remove(parts, path, true).await),
        None => Ok(()),
    }
}

/// Accepts that a name is gone already: in a bucket, an empty directory may be gone with its last file.
fn or_missing(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(failure) if failure.errno() == libc::ENOENT => Ok(()),
        outcome => outcome,
    }
}
