//! Checks whether a directory can be mounted over, before anything is changed.

use crate::mount_table;
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// A reason why a directory cannot be mounted over. Each message is one line that states the problem and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum MountPointError {
    /// The path does not exist.
    #[error("the mount point {path} does not exist; make it first with `mkdir -p {path}`", path = .0.display())]
    Missing(PathBuf),
    /// The path is not a directory.
    #[error("the mount point {} is not a directory; choose a directory", .0.display())]
    NotDirectory(PathBuf),
    /// The directory has entries, which the mount would hide.
    #[error("the mount point {} is not empty; choose an empty directory, or hide what is in it with --nonempty", .0.display())]
    NotEmpty(PathBuf),
    /// A volume of Tenon is mounted there already.
    #[error("{volume} is mounted at {path} already; `tenon umount {path}` first, or choose another directory", path = .path.display())]
    Mounted {
        /// The mount point.
        path: PathBuf,
        /// The source of the mounted volume.
        volume: String,
    },
    /// The path is in a mount whose process has died.
    #[error("the mount at {path} is dead, as the process that served it has ended; `tenon umount {path}` first", path = .0.display())]
    Dead(PathBuf),
    /// The path cannot be examined.
    #[error("cannot examine the mount point {path}: {error}", path = .0.display(), error = .1)]
    Io(PathBuf, io::Error),
}

/// Checks that `path` is a directory that can be mounted over: an empty one, or any one with `nonempty`. Returns the
/// path without symbolic links.
///
/// # Errors
/// The first problem found, as a [`MountPointError`].
pub fn check(path: &Path, nonempty: bool) -> Result<PathBuf, MountPointError> {
    let resolved = path.canonicalize().map_err(|error| classify_error(path, error))?;
    let io = |error| MountPointError::Io(resolved.clone(), error);
    if let Some(mounted) = mount_table::mounted_at(&resolved).map_err(io)? {
        if is_dead(&resolved) {
            return Err(MountPointError::Dead(resolved));
        }
        return Err(MountPointError::Mounted {
            path: resolved,
            volume: mounted.source.to_string_lossy().into_owned(),
        });
    }
    if !std::fs::metadata(&resolved).map_err(io)?.is_dir() {
        return Err(MountPointError::NotDirectory(resolved));
    }
    if !nonempty && resolved.read_dir().map_err(io)?.next().is_some() {
        return Err(MountPointError::NotEmpty(resolved));
    }
    Ok(resolved)
}

/// Returns whether the process that served the mount is gone, so that the kernel refuses every access. Blocks until a
/// process that lives has answered.
pub fn is_dead(mount_point: &Path) -> bool {
    // The kernel may have cached the attributes of a dead mount's root, but it never caches `statfs`.
    matches!(rustix::fs::statvfs(mount_point), Err(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Returns the path with the symbolic links of its parent directory resolved, as far as possible: nothing in a dead
/// mount can be resolved.
fn canonicalize_parent(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let parent = absolute.parent().and_then(|parent| parent.canonicalize().ok());
    match (parent, absolute.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => absolute,
    }
}

/// Returns the problem that an error of resolving `path` shows.
fn classify_error(path: &Path, error: io::Error) -> MountPointError {
    match error.raw_os_error() {
        Some(libc::ENOENT) => MountPointError::Missing(path.to_owned()),
        Some(libc::ENOTDIR) => MountPointError::NotDirectory(path.to_owned()),
        Some(libc::ENOTCONN | libc::ECONNABORTED) => MountPointError::Dead(canonicalize_parent(path)),
        _ => MountPointError::Io(path.to_owned(), error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_directory_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path().canonicalize().unwrap();
        assert_eq!(check(&here, false).unwrap(), here);
        assert!(matches!(check(&here.join("none"), false), Err(MountPointError::Missing(_))));
        std::fs::write(here.join("file"), "").unwrap();
        assert!(matches!(check(&here, false), Err(MountPointError::NotEmpty(_))));
        assert_eq!(check(&here, true).unwrap(), here);
        assert!(matches!(check(&here.join("file"), false), Err(MountPointError::NotDirectory(_))));
        let refused = check(&here.join("file/x"), false).unwrap_err().to_string();
        assert!(refused.contains("choose a directory"), "{refused}");
    }
}
