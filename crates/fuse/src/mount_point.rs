//! Whether a directory can be mounted over, before anything is touched.

use crate::mount_table;
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};

/// Why not. Each text is one line that says what and what to do.
#[derive(Debug, thiserror::Error)]
pub enum MountPointError {
    /// Nothing is there.
    #[error("the mount point {path} does not exist; make it first with `mkdir -p {path}`", path = .0.display())]
    Missing(PathBuf),
    /// Something else is there.
    #[error("the mount point {} is not a directory; choose a directory", .0.display())]
    NotDirectory(PathBuf),
    /// Files would be hidden.
    #[error("the mount point {} is not empty; choose an empty directory, or hide what is in it with --nonempty", .0.display())]
    NotEmpty(PathBuf),
    /// It is one already.
    #[error("{volume} is mounted at {path} already; `tenon umount {path}` first, or choose another directory", path = .path.display())]
    Mounted {
        /// The mount point.
        path: PathBuf,
        /// What is mounted there.
        volume: String,
    },
    /// A mount whose process died is there.
    #[error("the mount at {path} is dead; `tenon umount {path}` first", path = .0.display())]
    Dead(PathBuf),
    /// The system does not say.
    #[error("cannot look at the mount point {path}: {error}", path = .0.display(), error = .1)]
    Io(PathBuf, io::Error),
}

/// Checks that `path` is a directory that can be mounted over; returns it without symbolic links.
///
/// # Errors
/// The first of the reasons in [`MountPointError`] that holds.
pub fn check(path: &Path, nonempty: bool) -> Result<PathBuf, MountPointError> {
    let found = path.canonicalize().map_err(|error| unreachable(path, error))?;
    let io = |error| MountPointError::Io(found.clone(), error);
    if let Some(mounted) = mount_table::mounted_at(&found).map_err(io)? {
        if is_dead(&found) {
            return Err(MountPointError::Dead(found));
        }
        return Err(MountPointError::Mounted {
            path: found,
            volume: mounted.source.to_string_lossy().into_owned(),
        });
    }
    if !std::fs::metadata(&found).map_err(io)?.is_dir() {
        return Err(MountPointError::NotDirectory(found));
    }
    if !nonempty && found.read_dir().map_err(io)?.next().is_some() {
        return Err(MountPointError::NotEmpty(found));
    }
    Ok(found)
}

/// Whether the process of the mount at `mount_point` is gone, so that the kernel refuses everything in it. Waits as long as a
/// living process takes to answer.
pub fn is_dead(mount_point: &Path) -> bool {
    // The kernel may still know the attributes of a dead mount's root, but it remembers no `statfs`.
    matches!(rustix::fs::statvfs(mount_point), Err(Errno::NOTCONN | Errno::CONNABORTED))
}

/// The mount point of a dead mount without symbolic links before its last name: nothing in a dead mount can be looked at.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let parent = absolute.parent().and_then(|parent| parent.canonicalize().ok());
    match (parent, absolute.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => absolute,
    }
}

fn unreachable(path: &Path, error: io::Error) -> MountPointError {
    match error.raw_os_error() {
        Some(libc::ENOENT) => MountPointError::Missing(path.to_owned()),
        Some(libc::ENOTDIR) => MountPointError::NotDirectory(path.to_owned()),
        Some(libc::ENOTCONN | libc::ECONNABORTED) => MountPointError::Dead(resolved(path)),
        _ => MountPointError::Io(path.to_owned(), error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_directory_will_do() {
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
