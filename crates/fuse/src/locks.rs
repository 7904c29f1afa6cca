//! The keeper of locks.

/// The keeper of `flock` and `fcntl` locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Locks {
    /// The kernel, for this mount alone.
    #[default]
    Kernel,
    /// Lock requests fail with ENOLCK.
    Refused,
}
