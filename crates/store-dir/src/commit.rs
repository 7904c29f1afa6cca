//! Committing staged files as objects, and deleting objects. Only this module changes the tree.
//!
//! Directories are made and removed along with their objects while other writers work in the same directories. So every
//! step is relative to an open directory and is repeated from the root if that directory was removed meanwhile.

use super::place::{Place, alternate_name, is_alternate_inside, path};
use super::record::{OpenObject, Record, modified, size_bytes};
use super::staging::{DIR_MODE, Staged};
use super::tree::{Kind, find_in, kind, open_child};
use super::{Durability, Shared, errno};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, fstat, fsync, mkdirat, renameat, unlinkat};
use rustix::io::Errno;
use store::{ETag, ObjectKey, ObjectRef, Precondition, Result, StoreError, names};

/// Attempts of a write. An attempt fails if another writer removes a directory between two of its system calls.
const ATTEMPTS: usize = 1000;

/// The result of a step that other writers can disturb.
enum Step<T> {
    Done(T),
    /// Another writer changed the directories on the path: begin again at the root.
    Restart,
}

/// An object that has its name, which may not be on the disk yet.
pub(super) struct Placed {
    pub(super) object: ObjectRef,
    dir: OwnedFd,
    name: Vec<u8>,
}

impl Shared {
    /// Makes `staged` the object `key`, with the record's headers and tags and a new etag, which contains the number of
    /// parts. With [`Durability::Flush`] the object is on the disk when the call returns.
    pub(super) fn commit(
        &self,
        key: &ObjectKey,
        staged: &mut Staged,
        record: Record,
        parts: usize,
        precondition: &Precondition,
    ) -> Result<ObjectRef> {
        let placed = self.place(key, staged, record, parts, precondition)?;
        self.settle(&placed)?;
        Ok(placed.object)
    }

    /// Makes the name of a placed object durable.
    pub(super) fn settle(&self, placed: &Placed) -> Result<()> {
        self.flush_names(placed.dir.as_fd(), &placed.name, &placed.object.key)
    }

    /// Makes `staged` the object `key`, like [`commit`](Self::commit). Its bytes are on the disk then, its name is not.
    pub(super) fn place(
        &self,
        key: &ObjectKey,
        staged: &mut Staged,
        mut record: Record,
        parts: usize,
        precondition: &Precondition,
    ) -> Result<Placed> {
        let failed = |error| errno::failed(key, error);
        let stat = fstat(staged.file()).map_err(failed)?;
        // The suffix keeps programs that verify etags from taking 32 hexadecimal digits for an MD5.
        record.etag = format!("{:016x}{:016x}-{parts}", self.entropy.next_u64(), self.entropy.next_u64());
        record.modified = modified(&stat);
        record.size_bytes = size_bytes(&stat);
        record.write(staged.file(), key)?;
        self.flush(staged.file(), key)?;
        let place = Place::of(key);
        for _ in 0..ATTEMPTS {
            let Step::Done(dir) = self.make_dirs(&place.dirs, key)? else { continue };
            let placed = {
                let _held = self.locks.lock(&place.path());
                put_in_place(dir.as_fd(), &place.name, staged, precondition, key)?
            };
            if let Step::Done(()) = placed {
                let etag = ETag::new(&record.etag);
                let last_modified = Some(record.modified);
                let object = ObjectRef { key: key.clone(), etag, version: None, last_modified };
                return Ok(Placed { object, dir, name: place.name });
            }
        }
        Err(StoreError::Unavailable(format!(
            "'{key}' was not stored, because other writers keep changing the directories in its path: try again"
        )))
    }

    /// Removes the object, and the directories that become empty. Without a precondition, a missing object is no error.
    pub(super) fn delete(&self, key: &ObjectKey, precondition: &Precondition) -> Result<()> {
        self.staging()?;
        let place = Place::of(key);
        let _held = self.locks.lock(&place.path());
        let dir = match self.tree.open_dir(&place.dirs) {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return check(key, None, precondition),
            Err(error) => return Err(errno::failed(key, error)),
        };
        if *precondition != Precondition::None {
            let found = find_in(dir.as_fd(), &place.name).map_err(|error| errno::failed(key, error))?;
            check(key, found.as_ref(), precondition)?;
        }
        if unlink(dir.as_fd(), &place.name).map_err(|error| errno::failed(key, error))? {
            self.flush(&dir, key)?;
        }
        let mut dirs = place.dirs;
        if is_alternate_inside(&place.name) {
            dirs.push(place.name);
        }
        self.tree.prune(&dirs);
        Ok(())
    }

    /// Opens the object's file. Fails with `NotFound` if there is none.
    pub(super) fn find(&self, key: &ObjectKey) -> Result<OpenObject> {
        let found = self.tree.find(&Place::of(key)).map_err(|error| errno::failed(key, error))?;
        found.ok_or_else(|| StoreError::NotFound(key.clone()))
    }

    /// Opens the object's file; fails with `PreconditionFailed` unless it has the ref's etag.
    pub(super) fn find_exactly(&self, object: &ObjectRef) -> Result<OpenObject> {
        let found = self.find(&object.key)?;
        check(&object.key, Some(&found), &Precondition::Matches(object.etag.clone()))?;
        Ok(found)
    }

    /// Flushes a file or directory to the disk, if the store's options ask for that.
    pub(super) fn flush(&self, file: impl AsFd, key: &ObjectKey) -> Result<()> {
        match self.durability {
            Durability::Flush => fsync(file).map_err(|error| errno::failed(key, error)),
            Durability::None => Ok(()),
        }
    }

    /// Flushes the directories of both names that an object can have.
    fn flush_names(&self, dir: BorrowedFd<'_>, name: &[u8], key: &ObjectKey) -> Result<()> {
        if is_alternate_inside(name)
            && let Ok(inside) = open_child(dir, name)
        {
            self.flush(inside, key)?;
        }
        self.flush(dir, key)
    }

    /// Opens a directory, making the missing directories on the path.
    fn make_dirs(&self, dirs: &[Vec<u8>], key: &ObjectKey) -> Result<Step<OwnedFd>> {
        match self.tree.open_dir(dirs) {
            Ok(dir) => return Ok(Step::Done(dir)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(errno::failed(key, error)),
        }
        let mut at = self.tree.open_dir(&[]).map_err(|error| errno::failed(key, error))?;
        for (depth, name) in dirs.iter().enumerate() {
            let Step::Done(inside) = self.make_dir(at.as_fd(), &dirs[..depth], name, key)? else {
                return Ok(Step::Restart);
            };
            at = inside;
        }
        Ok(Step::Done(at))
    }

    /// Opens the directory `name` in `dir` or makes it. An object with this name is renamed to its alternate name.
    fn make_dir(
        &self,
        dir: BorrowedFd<'_>,
        above: &[Vec<u8>],
        name: &[u8],
        key: &ObjectKey,
    ) -> Result<Step<OwnedFd>> {
        match open_child(dir, name) {
            Ok(inside) => return Ok(Step::Done(inside)),
            Err(Errno::NOTDIR | Errno::LOOP) => self.move_to_alternate(dir, above, name, key)?,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(errno::failed(key, error)),
        }
        match mkdirat(dir, name, DIR_MODE) {
            Ok(()) => self.flush(dir, key)?,
            Err(Errno::EXIST) => {}
            Err(Errno::NOENT) => return Ok(Step::Restart),
            Err(error) => return Err(errno::failed(key, error)),
        }
        match open_child(dir, name) {
            Ok(inside) => Ok(Step::Done(inside)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(Step::Restart),
            Err(error) => Err(errno::failed(key, error)),
        }
    }

    /// Renames the object `name` to its alternate name, so that a directory can have the plain name.
    fn move_to_alternate(
        &self,
        dir: BorrowedFd<'_>,
        above: &[Vec<u8>],
        name: &[u8],
        key: &ObjectKey,
    ) -> Result<()> {
        let failed = |error| errno::failed(key, error);
        let _held = self.locks.lock(&path(above, name));
        match kind(dir, name).map_err(failed)? {
            Kind::File if !names::is_continued(name) => {}
            Kind::File | Kind::Foreign => return Err(foreign_file_error(key)),
            Kind::Nothing | Kind::Directory => return Ok(()),
        }
        let renamed = match is_alternate_inside(name) {
            true => self.staging()?.put_inside(dir, name),
            false => renameat(dir, name, dir, alternate_name(name)),
        };
        match renamed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Renames the staged file to the object's plain or alternate name, if the object there meets the precondition. The
/// caller holds the key's lock.
fn put_in_place(
    dir: BorrowedFd<'_>,
    name: &[u8],
    staged: &mut Staged,
    precondition: &Precondition,
    key: &ObjectKey,
) -> Result<Step<()>> {
    let failed = |error| errno::failed(key, error);
    let alternate = alternate_name(name);
    let (target, taken) = match kind(dir, name).map_err(failed)? {
        Kind::File => (name, true),
        Kind::Nothing if kind(dir, &alternate).map_err(failed)? == Kind::Nothing => (name, false),
        Kind::Nothing => (alternate.as_slice(), true),
        Kind::Directory => (alternate.as_slice(), kind(dir, &alternate).map_err(failed)? == Kind::File),
        Kind::Foreign => return Err(foreign_file_error(key)),
    };
    let renamed = match precondition {
        Precondition::None => staged.rename(dir, target),
        Precondition::Absent if taken => return Err(StoreError::PreconditionFailed(key.clone())),
        Precondition::Absent => staged.rename_new(dir, target),
        Precondition::Matches(_) => {
            let found = find_in(dir, name).map_err(failed)?;
            check(key, found.as_ref(), precondition)?;
            staged.rename(dir, target)
        }
    };
    match renamed {
        Ok(()) => Ok(Step::Done(())),
        Err(Errno::NOENT | Errno::EXIST | Errno::ISDIR | Errno::NOTEMPTY) => Ok(Step::Restart),
        Err(error) => Err(failed(error)),
    }
}

/// Removes an object's file under both names that it can have. Returns whether a file was removed.
///
/// The alternate name is removed first: a file with the plain name takes precedence as the object.
fn unlink(dir: BorrowedFd<'_>, name: &[u8]) -> Result<bool, Errno> {
    let mut removed = false;
    for name in [alternate_name(name).as_slice(), name] {
        if kind(dir, name)? == Kind::File {
            match unlinkat(dir, name, AtFlags::empty()) {
                Ok(()) => removed = true,
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(removed)
}

fn check(key: &ObjectKey, found: Option<&OpenObject>, precondition: &Precondition) -> Result<()> {
    let holds = match (precondition, found) {
        (Precondition::None, _) | (Precondition::Absent, None) => true,
        (Precondition::Matches(etag), Some(found)) => found.etag() == *etag,
        (Precondition::Absent, Some(_)) | (Precondition::Matches(_), None) => false,
    };
    if holds { Ok(()) } else { Err(StoreError::PreconditionFailed(key.clone())) }
}

fn foreign_file_error(key: &ObjectKey) -> StoreError {
    StoreError::Denied(format!(
        "a link, a special file or a file with a reserved name is in the path of '{key}'"
    ))
}
