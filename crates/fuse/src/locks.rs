//! Treatment of locks.

/// Treatment of `flock` and `fcntl` locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Locks {
    /// The kernel keeps locks, for this mount alone. With [`MountOptions::is_shared`](crate::MountOptions::is_shared)
    /// the file system keeps them, for all its mounts.
    #[default]
    Kernel,
    /// The file system keeps locks, for all machines that have the volume mounted.
    FileSystem,
    /// All lock requests fail with ENOLCK.
    Refused,
}
