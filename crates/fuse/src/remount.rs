//! Changes settings that the kernel enforces, while a volume is mounted.

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::path::{Path, PathBuf};

/// A change of settings. `None` leaves a setting as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// Whether the kernel refuses every change.
    pub read_only: Option<bool>,
    /// Whether set-user-id and set-group-id bits of programs take effect.
    pub suid: Option<bool>,
    /// Whether device files work as devices.
    pub dev: Option<bool>,
    /// Whether programs can be run.
    pub exec: Option<bool>,
}

/// A reason why the settings were not changed.
#[derive(Debug, thiserror::Error)]
pub enum RemountError {
    /// The mount cannot become read-only, because programs have files open for writing.
    #[error("{} is busy: programs have files open for writing in it", .0.display())]
    Busy(PathBuf),
    /// The user lacks the right to remount.
    #[error("only root may remount {}; unmount it, and mount it anew with the other options", .0.display())]
    Forbidden(PathBuf),
    /// The system call failed.
    #[error("cannot remount {path}: {error}", path = .0.display(), error = .1)]
    Io(PathBuf, #[source] std::io::Error),
}

/// Changes the settings with which the kernel treats the mount at `mount_point`.
///
/// # Errors
/// [`RemountError::Busy`] if the mount is to become read-only while programs have files open for writing,
/// [`RemountError::Forbidden`] if this user may not remount, otherwise [`RemountError::Io`].
pub fn remount(mount_point: &Path, change: Change) -> Result<(), RemountError> {
    let failed = |error: Errno| match error {
        Errno::BUSY => RemountError::Busy(mount_point.to_owned()),
        Errno::PERM => RemountError::Forbidden(mount_point.to_owned()),
        error => RemountError::Io(mount_point.to_owned(), error.into()),
    };
    let now = rustix::fs::statvfs(mount_point).map_err(failed)?.f_flag;
    let denies = |allowed: Option<bool>, flag| allowed.map_or(now.contains(flag), |allowed| !allowed);
    let mut flags = MountFlags::empty();
    flags.set(
        MountFlags::RDONLY,
        denies(change.read_only.map(|read_only| !read_only), StatVfsMountFlags::RDONLY),
    );
    flags.set(MountFlags::NOSUID, denies(change.suid, StatVfsMountFlags::NOSUID));
    flags.set(MountFlags::NODEV, denies(change.dev, StatVfsMountFlags::NODEV));
    flags.set(MountFlags::NOEXEC, denies(change.exec, StatVfsMountFlags::NOEXEC));
    rustix::mount::mount_remount(mount_point, flags, c"").map_err(failed)
}
