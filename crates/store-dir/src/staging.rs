//! Files that are being written and are not objects yet, in the store's own directory in the root.

use super::errno;
use super::place::{ALTERNATE_NAME_INSIDE, OWN_DIR};
use super::record::ATTRIBUTE;
use super::tree::{Tree, open_child};
use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, RenameFlags, XattrFlags, copy_file_range, fsetxattr, ftruncate, linkat,
    mkdirat, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::{Errno, pread, pwritev};
use std::io::IoSlice;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::{Clock, Entropy, ObjectKey, Payload, Result, StoreError};

/// Age from which a staged file is removed: no running process writes so long.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 3600);

/// The kernel's limit of pieces per write (`IOV_MAX`).
const PIECES_MAX: usize = 1024;

/// Maximum bytes per call of `copy_file_range`; the kernel's limit is just below 2 GiB.
const COPY_BYTES_MAX: usize = 1 << 30;

/// Buffer of a copy through memory.
const BUFFER_BYTES: usize = 512 * 1024;

/// Mode of objects' files, reduced by the process's umask like that of any other file.
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
pub(super) const DIR_MODE: Mode = Mode::from_raw_mode(0o777);

/// The directory of files being written.
pub(super) struct Staging {
    dir: OwnedFd,
    entropy: Arc<Entropy>,
}

impl Staging {
    /// Makes the directory, removes abandoned files, and checks that the file system supports extended attributes.
    pub(super) fn open(tree: &Tree, path: &Path, clock: &dyn Clock, entropy: Arc<Entropy>) -> Result<Self> {
        let about = |error| errno::about(&path.display(), error);
        match mkdirat(tree.root(), OWN_DIR, DIR_MODE) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(about(error)),
        }
        let dir = open_child(tree.root(), OWN_DIR).map_err(|error| match error {
            Errno::NOTDIR | Errno::LOOP => StoreError::Invalid(format!(
                "'{}' holds '.tenon-store', which is not a directory: rename it",
                path.display()
            )),
            error => about(error),
        })?;
        let staging = Self { dir, entropy };
        staging.sweep(clock).map_err(about)?;
        staging.probe(path)?;
        Ok(staging)
    }

    /// Makes a file that is to become the object `key`.
    pub(super) fn create(self: &Arc<Self>, key: &ObjectKey) -> Result<Staged> {
        let name = self.unique();
        let file = self.create_file(&name).map_err(|error| errno::failed(key, error))?;
        Ok(Staged { staging: self.clone(), name: Some(name), file, key: key.clone() })
    }

    /// Atomically replaces the file `name` in `dir` by a directory that contains the file as [`ALTERNATE_NAME_INSIDE`].
    pub(super) fn put_inside(&self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
        let own = self.unique();
        mkdirat(&self.dir, &own, DIR_MODE)?;
        let inside = [own.as_bytes(), ALTERNATE_NAME_INSIDE].join(&b'/');
        let exchanged = linkat(dir, name, &self.dir, inside, AtFlags::empty())
            .and_then(|()| renameat_with(&self.dir, &own, dir, name, RenameFlags::EXCHANGE));
        self.remove(own.as_bytes());
        exchanged
    }

    /// Removes a staged file, or a directory left by [`Staging::put_inside`].
    fn remove(&self, name: &[u8]) {
        if unlinkat(&self.dir, name, AtFlags::empty()) == Err(Errno::ISDIR) {
            unlinkat(&self.dir, [name, ALTERNATE_NAME_INSIDE].join(&b'/'), AtFlags::empty()).ok();
            unlinkat(&self.dir, name, AtFlags::REMOVEDIR).ok();
        }
    }

    /// Makes a unique name: 128 random bits in hexadecimal.
    pub(super) fn unique(&self) -> String {
        format!("{:016x}{:016x}", self.entropy.next_u64(), self.entropy.next_u64())
    }

    fn create_file(&self, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.dir, name, flags, FILE_MODE)
    }

    /// Removes abandoned files.
    fn sweep(&self, clock: &dyn Clock) -> Result<(), Errno> {
        for entry in Dir::read_from(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(stat) = statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if clock.now().since(super::record::modified(&stat)) > ABANDONED_AFTER {
                self.remove(name.to_bytes());
            }
        }
        Ok(())
    }

    /// Checks that the file system supports extended attributes. Fails with `Unsupported`.
    fn probe(&self, path: &Path) -> Result<()> {
        let name = self.unique();
        let file = self.create_file(&name).map_err(|error| errno::about(&path.display(), error))?;
        let kept = fsetxattr(&file, ATTRIBUTE, b"", XattrFlags::empty());
        unlinkat(&self.dir, &name, AtFlags::empty()).ok();
        kept.map_err(|error| match error {
            Errno::OPNOTSUPP => StoreError::Unsupported(format!(
                "extended attributes on the file system of '{}': choose another directory, or open it read-only",
                path.display()
            )),
            error => errno::about(&path.display(), error),
        })
    }
}

/// A file that is being written. Dropping it removes the file, unless it became an object.
pub(super) struct Staged {
    staging: Arc<Staging>,
    /// The name in the staging directory; `None` once the file is an object.
    name: Option<String>,
    file: OwnedFd,
    key: ObjectKey,
}

impl Staged {
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Writes the payload at an offset.
    pub(super) fn write(&self, at: u64, body: &Payload) -> Result<()> {
        write_all(self.file(), at, body.pieces()).map_err(|error| errno::failed(&self.key, error))
    }

    /// Copies a range of another file to an offset, sharing its blocks if the file system can.
    pub(super) fn copy(&self, at: u64, from: BorrowedFd<'_>, range: Range<u64>) -> Result<()> {
        copy_range(from, range, self.file(), at).map_err(|error| errno::failed(&self.key, error))
    }

    /// Truncates the file to a length.
    pub(super) fn truncate(&self, len: u64) -> Result<()> {
        ftruncate(&self.file, len).map_err(|error| errno::failed(&self.key, error))
    }

    /// Renames the file to `name` in `dir`, replacing an existing file. Fails with `NOENT` if the file is an object
    /// already.
    pub(super) fn rename(&mut self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
        let Some(own) = &self.name else { return Err(Errno::NOENT) };
        renameat(&self.staging.dir, own, dir, name)?;
        self.name = None;
        Ok(())
    }

    /// Renames the file to `name` in `dir`; fails with `EXIST` if the name exists. Atomic among processes.
    pub(super) fn rename_new(&mut self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
        let Some(own) = &self.name else { return Err(Errno::NOENT) };
        match renameat_with(&self.staging.dir, own, dir, name, RenameFlags::NOREPLACE) {
            Ok(()) => {
                self.name = None;
                Ok(())
            }
            // The file system lacks the flag. A hard link fails as atomically if the name exists; dropping `self`
            // removes the first name.
            Err(Errno::INVAL) => linkat(&self.staging.dir, own, dir, name, AtFlags::empty()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            unlinkat(&self.staging.dir, name, AtFlags::empty()).ok();
        }
    }
}

fn write_all(file: BorrowedFd<'_>, mut at: u64, pieces: &[Bytes]) -> Result<(), Errno> {
    for group in pieces.chunks(PIECES_MAX) {
        let mut slices: Vec<IoSlice<'_>> = group.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut left = slices.as_mut_slice();
        while !left.is_empty() {
            match pwritev(file, left, at) {
                Ok(0) => return Err(Errno::IO),
                Ok(written) => {
                    at += written as u64;
                    IoSlice::advance_slices(&mut left, written);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Copies a range to an offset; a source that is too short is an error.
fn copy_range(from: BorrowedFd<'_>, range: Range<u64>, to: BorrowedFd<'_>, at: u64) -> Result<(), Errno> {
    let (mut source, mut target) = (range.start, at);
    while source < range.end {
        let wanted = usize::try_from(range.end - source).unwrap_or(usize::MAX).min(COPY_BYTES_MAX);
        match copy_file_range(from, Some(&mut source), to, Some(&mut target), wanted) {
            Ok(0) => return Err(Errno::IO),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
                return copy_through_memory(from, source..range.end, to, target);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Copies through memory, for file systems that do not support `copy_file_range`.
fn copy_through_memory(
    from: BorrowedFd<'_>,
    range: Range<u64>,
    to: BorrowedFd<'_>,
    at: u64,
) -> Result<(), Errno> {
    let mut copied = 0;
    while range.start + copied < range.end {
        let wanted = (range.end - range.start - copied).min(BUFFER_BYTES as u64) as usize;
        let mut buffer = Vec::with_capacity(wanted);
        match pread(from, spare_capacity(&mut buffer), range.start + copied) {
            Ok(0) => return Err(Errno::IO),
            Ok(_) => buffer.truncate(wanted),
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error),
        }
        let len = buffer.len() as u64;
        write_all(to, at + copied, &[buffer.into()])?;
        copied += len;
    }
    Ok(())
}
