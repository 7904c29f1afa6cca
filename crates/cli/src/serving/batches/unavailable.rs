//! Reasons why a request about batches is refused, with their errno for programs that use the library.

use anyhow::Error;

/// A reason why a request about batches is refused.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(crate) struct Unavailable {
    errno: i32,
    why: String,
}

impl Unavailable {
    /// Returns the error for a volume that cannot have batches, as it is or as it was opened.
    pub(super) fn unsupported(why: &str) -> Error {
        Self { errno: libc::EOPNOTSUPP, why: why.to_owned() }.into()
    }

    /// Returns the error for a batch or a directory that is in use.
    pub(super) fn busy(why: String) -> Error {
        Self { errno: libc::EBUSY, why }.into()
    }

    /// Returns the error for a batch, or a refused change of one, that does not exist.
    pub(super) fn not_found(why: String) -> Error {
        Self { errno: libc::ENOENT, why }.into()
    }

    /// Returns the error for a change that cannot be made again.
    pub(super) fn not_again(errno: i32, why: String) -> Error {
        Self { errno, why }.into()
    }

    /// Returns the errno for programs.
    pub(crate) fn errno(&self) -> i32 {
        self.errno
    }
}
