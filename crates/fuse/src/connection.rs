//! Mounts and unmounts.
//!
//! Root mounts by mount(2) directly: the mount table then shows our own file system type, and `fuser`, which unmounts
//! only what it mounted, leaves unmounting to this crate. Other users need the set-uid helper `fusermount3`: `fuser`
//! runs it to mount, this crate to unmount.

use crate::mount_options::{MountError, MountOptions, UnmountError};
use crate::mount_table::FILE_SYSTEM_TYPE;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

const DEVICE: &str = "/dev/fuse";
/// Program that mounts for users who may not.
const HELPER: &str = "fusermount3";

/// Mounts by mount(2), and returns the open `/dev/fuse` that connects this process with the kernel. Returns `None` if
/// this process lacks the right to mount, so that the helper must mount.
///
/// # Errors
/// [`MountError::Device`] if `/dev/fuse` cannot be opened, otherwise [`MountError::Mount`].
pub(crate) fn mount_as_root(
    mount_point: &Path,
    options: &MountOptions,
) -> Result<Option<OwnedFd>, MountError> {
    let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| MountError::Device(error.into()))?;
    let failed = |error| MountError::Mount(mount_point.to_owned(), error);
    let root_mode = std::fs::metadata(mount_point).map_err(failed)?.mode();
    let data =
        CString::new(mount_data(device.as_raw_fd(), root_mode, options)).map_err(|e| failed(e.into()))?;
    match rustix::mount::mount(
        &options.source,
        mount_point,
        FILE_SYSTEM_TYPE,
        flags(options),
        data.as_c_str(),
    ) {
        Ok(()) => Ok(Some(device)),
        Err(rustix::io::Errno::PERM) => Ok(None),
        Err(error) => Err(failed(error.into())),
    }
}

/// Returns the configuration with which `fuser` runs the helper to mount. The mount is always `nosuid` and `nodev`.
pub(crate) fn helper_config(options: &MountOptions) -> fuser::Config {
    use fuser::MountOption as Option;
    let mut config = session_config(options);
    config.mount_options = vec![
        Option::FSName(options.source.replace(',', "\\,")),
        Option::Subtype("tenon".to_owned()),
        Option::DefaultPermissions,
        Option::NoSuid,
        Option::NoDev,
    ];
    if options.read_only {
        config.mount_options.push(Option::RO);
    }
    if options.no_exec {
        config.mount_options.push(Option::NoExec);
    }
    config
}

/// Returns the part of `fuser`'s configuration that is the same for both ways of mounting: access of other users, and
/// threads.
pub(crate) fn session_config(options: &MountOptions) -> fuser::Config {
    let mut config = fuser::Config::default();
    config.acl = if options.allow_other { fuser::SessionACL::All } else { fuser::SessionACL::Owner };
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    config
}

/// Unmounts what is at `mount_point`. With `lazily` the mount disappears at once and is freed when the last file is closed.
///
/// # Errors
/// [`UnmountError::Busy`] if programs use the mount and `lazily` is false, [`UnmountError::NotMounted`] if nothing is
/// mounted there, [`UnmountError::Io`] otherwise; without the right to unmount, the helper unmounts, whose errors are
/// `Busy` or `Io`.
pub(crate) fn unmount(mount_point: &Path, lazily: bool) -> Result<(), UnmountError> {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(mount_point, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::BUSY) => Err(UnmountError::Busy(mount_point.to_owned())),
        Err(rustix::io::Errno::INVAL) => Err(UnmountError::NotMounted(mount_point.to_owned())),
        Err(rustix::io::Errno::PERM) => unmount_by_helper(mount_point, lazily),
        Err(error) => Err(UnmountError::Io(mount_point.to_owned(), error.into())),
    }
}

/// Unmounts by `fusermount3 -u`, lazily with `-z`.
fn unmount_by_helper(mount_point: &Path, lazily: bool) -> Result<(), UnmountError> {
    let arguments = if lazily { ["-u", "-z"].as_slice() } else { ["-u"].as_slice() };
    let output = Command::new(HELPER).args(arguments).arg("--").arg(mount_point).output();
    let output = output.map_err(|error| UnmountError::Io(mount_point.to_owned(), error))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false if stderr.contains("busy") => Err(UnmountError::Busy(mount_point.to_owned())),
        false => {
            Err(UnmountError::Io(mount_point.to_owned(), std::io::Error::other(stderr.trim().to_owned())))
        }
    }
}

/// Returns the mount options that the kernel's FUSE itself reads (`Documentation/filesystems/fuse.rst`). `device` is
/// the file descriptor of `/dev/fuse`, `root_mode` the mode of the mount point.
fn mount_data(device: i32, root_mode: u32, options: &MountOptions) -> String {
    let (user, group) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut data =
        format!("fd={device},rootmode={root_mode:o},user_id={user},group_id={group},default_permissions");
    if options.allow_other {
        data.push_str(",allow_other");
    }
    data
}

/// Returns the flags of mount(2) for the options.
fn flags(options: &MountOptions) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOEXEC, options.no_exec);
    flags
}
