//! Errors of a drive.

use std::io;
use store::StoreError;

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a drive. Every message is one line, and says what to do where something can be done.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed to read, write or flush.
    #[error("the device failed at byte {at}: {reason}")]
    Device {
        /// Position in bytes from the device's beginning.
        at: u64,
        /// The kernel's error message.
        reason: String,
    },
    /// The drive accepts no writes: a write or a flush failed before, so that the device's contents are unknown, its
    /// own state contradicted itself, or it was opened read-only.
    #[error("the drive accepts no writes ({0}); remove the cause, then open it again")]
    Failed(String),
    /// A call ended before it was complete, as when the process ends. The drive may or may not have done what was
    /// asked.
    #[error("the call was aborted, and may or may not have taken effect: {0}")]
    Aborted(String),
    /// The device does not hold a drive.
    #[error("{0}: not a drive; 'tenon drive format' makes one, and erases the device")]
    Foreign(String),
    /// Bytes do not match their checksum, or contradict what is stored elsewhere.
    #[error("damaged: {what} at byte {at}")]
    Damaged {
        /// The structure that was read.
        what: &'static str,
        /// Position in bytes from the device's beginning.
        at: u64,
    },
    /// The value of an index entry is not valid. Names the structure and the entry.
    #[error("damaged: {0}")]
    DamagedEntry(String),
    /// Bytes of an index table do not match their checksum.
    #[error("damaged: the index, at byte {at} of a table: {what}")]
    DamagedIndex {
        /// The kind of damage.
        what: &'static str,
        /// Position in bytes from the table's beginning.
        at: u64,
    },
    /// The device failed to read a table of the index.
    #[error("the device failed to read the index at byte {at}: {reason}")]
    UnreadableIndex {
        /// Position in bytes from the device's beginning.
        at: u64,
        /// The kernel's error message.
        reason: String,
    },
    /// The index cannot be written, so changes that make it longer are refused.
    #[error(
        "the drive refuses new data as its index cannot be written ({0}); reads and deletions go on: scrub the drive and copy its objects"
    )]
    IndexUnwritable(String),
    /// No space is left.
    #[error("the drive is full; deleting objects frees space")]
    Full,
    /// Slow senders hold all memory for receive buffers, and none became free within the time limit.
    #[error("all memory for receiving objects is in use; send fewer objects at the same time")]
    Busy,
    /// Rows of an array cannot be computed for a new member at the moment.
    #[error(
        "{rows} rows cannot be computed from the other devices: try again, or rebuild while the drive is not served, which fills such \
         rows with zeros"
    )]
    NotComputable {
        /// Number of these rows.
        rows: u64,
    },
    /// The device, the array, the pool or the request is unsuitable, for the reason in the message.
    #[error("{0}")]
    Unsuitable(String),
}

impl Error {
    pub(crate) fn device(at: u64) -> impl Fn(io::Error) -> Self {
        move |error| Self::Device { at, reason: error.to_string() }
    }

    pub(crate) fn aborted(cause: &impl std::fmt::Display) -> Self {
        Self::Aborted(cause.to_string())
    }

    /// Returns whether a part of the index is damaged or unreadable. The rest of the drive may be intact.
    pub(crate) fn is_of_index(&self) -> bool {
        matches!(self, Self::DamagedIndex { .. } | Self::UnreadableIndex { .. })
    }

    /// Returns whether bytes that were read are damaged.
    pub(crate) fn is_wrong(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::DamagedIndex { .. } | Self::DamagedEntry(_))
    }

    /// Returns whether the device failed, as when it cannot read some bytes.
    pub(crate) fn is_unreadable(&self) -> bool {
        matches!(self, Self::Device { .. } | Self::UnreadableIndex { .. })
    }

    /// Returns whether the error means that a drive is present but damaged in part: its intact part can be opened with
    /// [`OpenOptions::before_damage`](crate::OpenOptions::before_damage).
    pub fn is_damage(&self) -> bool {
        self.is_wrong() || self.is_unreadable()
    }

    pub(crate) fn damaged_entry(what: &'static str, key: &[u8]) -> Self {
        Self::DamagedEntry(format!("{what} in the index, at the entry '{}'", key.escape_ascii()))
    }

    pub(crate) const fn damaged(what: &'static str, at: u64) -> Self {
        Self::Damaged { what, at }
    }
}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        match error {
            Error::Full => Self::Full(error.to_string()),
            Error::Busy => Self::Throttled(error.to_string()),
            error if error.is_wrong() => Self::Corrupt(error.to_string()),
            error => Self::Unavailable(error.to_string()),
        }
    }
}
