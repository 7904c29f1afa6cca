//! Options of a mount, and errors of mounting and unmounting.

use crate::locks::Locks;
use crate::virtual_files::VirtualFiles;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Options of a mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The source that the mount table shows. It is public, so it must not contain secrets.
    pub source: String,
    /// The directory that is the root of the mount.
    pub root: vfs::Ino,
    /// Whether the kernel refuses every change.
    pub read_only: bool,
    /// Whether other users than the one who mounts may access the mount; permissions are still checked.
    pub allow_other: bool,
    /// Whether programs cannot be run.
    pub no_exec: bool,
    /// Whether set-user-id and set-group-id bits of programs take effect. Needs root.
    pub suid: bool,
    /// Whether device files work as devices. Needs root.
    pub dev: bool,
    /// Treatment of `flock` and `fcntl` locks.
    pub locks: Locks,
    /// The number of threads that read requests; 0 counts as 1.
    pub threads: usize,
    /// Whether this process has, or will have, other mounts of the same file system. The kernel then caches nothing, so
    /// that all mounts show the same at any time, and locks apply across mounts.
    pub is_shared: bool,
    /// Files that the mount shows below `.tenon` if its root is that of the volume.
    pub virtual_files: Option<Arc<dyn VirtualFiles>>,
}

/// An error of mounting.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// `/dev/fuse` cannot be opened: mostly because the kernel offers no FUSE here.
    #[error("cannot open /dev/fuse ({0}); load the fuse module, or allow the device in this container")]
    Device(#[source] io::Error),
    /// The mount point cannot be examined, or mount(2) failed for another reason than a missing right.
    #[error("cannot mount at {path}: {error}", path = .0.display(), error = .1)]
    Mount(PathBuf, #[source] io::Error),
    /// The user lacks the right to mount, and mounting by the helper `fusermount3` failed.
    #[error("cannot mount at {path} as this user: {error}; install fuse3 (fusermount3), or mount as root", path = .0.display(), error = .1)]
    Helper(PathBuf, #[source] io::Error),
    /// The first exchange with the kernel, or starting a thread, failed.
    #[error("cannot start serving {path}: {error}", path = .0.display(), error = .1)]
    Start(PathBuf, #[source] io::Error),
}

/// An error of unmounting. Nothing was unmounted.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// Programs have files open in the mount, or their working directory is in it.
    #[error("{} is busy: programs have files open in it, or use it as working directory", .0.display())]
    Busy(PathBuf),
    /// Nothing is mounted at the path.
    #[error("nothing is mounted at {}", .0.display())]
    NotMounted(PathBuf),
    /// The system call or the helper failed.
    #[error("cannot unmount {path}: {error}", path = .0.display(), error = .1)]
    Io(PathBuf, #[source] io::Error),
}
