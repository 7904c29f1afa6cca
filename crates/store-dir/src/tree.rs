//! The directories under the root: opened without following links, and removed when empty.

use super::errno;
use super::place::{Place, alternate_name};
use super::record::OpenObject;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat, openat2, statat, unlinkat,
};
use rustix::io::Errno;
use std::path::Path;
use store::{Result, StoreError};

/// Flags for files. `NONBLOCK` keeps the opening of a pipe from waiting for its other end.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The root directory, from which all paths are opened.
pub(super) struct Tree {
    root: OwnedFd,
}

impl Tree {
    pub(super) fn open(path: &Path) -> Result<Self> {
        match open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(root) => Ok(Self { root }),
            Err(Errno::NOENT) => Err(StoreError::NoSuchBucket(path.display().to_string())),
            Err(error) => Err(errno::about(&path.display(), error)),
        }
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens a directory by its path from the root.
    pub(super) fn open_dir(&self, dirs: &[Vec<u8>]) -> Result<OwnedFd, Errno> {
        if dirs.is_empty() {
            return openat(&self.root, ".", DIRECTORY, Mode::empty());
        }
        openat2(&self.root, dirs.join(&b'/'), DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS)
    }

    /// Opens a key's file at its plain or its alternate path; `None` if neither is a regular file.
    pub(super) fn find(&self, place: &Place) -> Result<Option<OpenObject>, Errno> {
        match open_regular(self.root(), &place.path())? {
            Some(found) => Ok(Some(found)),
            None => open_regular(self.root(), &place.alternate_path()),
        }
    }

    /// Removes the directory and its parents as long as they are empty; never the root, and nothing behind a link.
    pub(super) fn prune(&self, dirs: &[Vec<u8>]) {
        let mut above = dirs;
        while let [parents @ .., name] = above {
            match self.open_dir(parents).and_then(|parent| unlinkat(&parent, name, AtFlags::REMOVEDIR)) {
                Ok(()) | Err(Errno::NOENT) => above = parents,
                Err(_) => return,
            }
        }
    }
}

/// The type of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Nothing,
    File,
    Directory,
    /// A link or a special file, which the store leaves alone.
    Foreign,
}

pub(super) fn kind(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Kind, Errno> {
    Ok(match stat(dir, name)?.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        None => Kind::Nothing,
        Some(FileType::RegularFile) => Kind::File,
        Some(FileType::Directory) => Kind::Directory,
        Some(_) => Kind::Foreign,
    })
}

/// Describes a regular file; `None` if the path is missing or anything else. Follows links on the way to the last name, as there is no call
/// that looks at a file without: somebody who replaces a directory by a link meanwhile sees the length of a file elsewhere, and no bytes.
pub(super) fn stat_regular(dir: BorrowedFd<'_>, path: &[u8]) -> Result<Option<Stat>, Errno> {
    let regular = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    Ok(stat(dir, path)?.filter(regular))
}

fn stat(dir: BorrowedFd<'_>, path: &[u8]) -> Result<Option<Stat>, Errno> {
    match statat(dir, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens the directory `name` in `dir`, without following a link.
pub(super) fn open_child(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    openat(dir, name, DIRECTORY, Mode::empty())
}

/// Opens an object in its directory, under its plain name or its alternate name; `None` if neither is a regular file.
pub(super) fn find_in(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Option<OpenObject>, Errno> {
    match open_regular(dir, name)? {
        Some(found) => Ok(Some(found)),
        None => open_regular(dir, &alternate_name(name)),
    }
}

/// Opens a regular file; `None` if the path is missing or anything else.
pub(super) fn open_regular(dir: BorrowedFd<'_>, path: &[u8]) -> Result<Option<OpenObject>, Errno> {
    let file = match openat2(dir, path, READ, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error),
    };
    let stat = fstat(&file)?;
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    Ok(regular.then(|| OpenObject::new(file, stat)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Regression: a directory on the way that had become a link was followed, and an empty directory elsewhere was removed.
    #[test]
    fn empty_directories_behind_a_link_are_not_removed() {
        let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(elsewhere.path().join("empty")).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("link")).unwrap();
        fs::create_dir_all(dir.path().join("full/a/b")).unwrap();
        fs::write(dir.path().join("full/file"), "x").unwrap();
        let tree = Tree::open(dir.path()).unwrap();
        let path = |text: &str| text.split('/').map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
        tree.prune(&path("link/empty"));
        assert!(elsewhere.path().join("empty").is_dir() && dir.path().join("link").is_symlink());
        tree.prune(&path("full/a/b"));
        assert_eq!(fs::read_dir(dir.path().join("full")).unwrap().count(), 1);
    }
}
