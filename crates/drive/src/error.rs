//! What can go wrong with a drive.

use std::io;
use store::StoreError;

/// Shorthand for results of the drive.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a drive. Every text is one line and says what to do where something can be done.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed to read, write or flush.
    #[error("the device failed at byte {at}: {reason}")]
    Device {
        /// Where, in bytes from the device's beginning.
        at: u64,
        /// What the kernel said.
        reason: String,
    },
    /// The device failed a write before, so that nobody knows what is on it: it is read only until it is opened again.
    #[error("the drive takes no writes since the device failed: {0}; open it again when the device is well")]
    Failed(String),
    /// There is something else on the device.
    #[error("{0}: not a drive; 'tenon drive format' makes one, and removes what is there")]
    Foreign(String),
    /// What is read is not what was written.
    #[error("damaged: {what} at byte {at}")]
    Damaged {
        /// What was to be read.
        what: &'static str,
        /// Where, in bytes from the device's beginning.
        at: u64,
    },
    /// A table of the index is not what was written.
    #[error("damaged: the index, at byte {at} of a table: {what}")]
    DamagedIndex {
        /// What is wrong with it.
        what: &'static str,
        /// Where, in bytes from the table's beginning.
        at: u64,
    },
    /// The device failed to read a table of the index.
    #[error("the device failed to read the index at byte {at}: {reason}")]
    UnreadIndex {
        /// Where, in bytes from the device's beginning.
        at: u64,
        /// What the kernel said.
        reason: String,
    },
    /// The index cannot be written, so that nothing can be stored that makes it longer.
    #[error(
        "the drive stores nothing more, as its index cannot be written ({0}); deleting goes on; scrub the drive, and copy what is on it"
    )]
    Stuck(String),
    /// No space is left.
    #[error("the drive is full; deleting objects frees space")]
    Full,
    /// Memory for bytes that come from elsewhere is all taken by who sends slowly.
    #[error("the memory for what is being received is taken; send fewer objects at the same time")]
    Busy,
    /// Rows of an array cannot be computed for a new member now.
    #[error(
        "{rows} rows cannot be computed from the other devices now: try again, or rebuild while nobody uses the drive, which leaves \
         such rows empty"
    )]
    NotComputable {
        /// How many rows.
        rows: u64,
    },
    /// The device cannot hold a drive, or not the one that is asked for.
    #[error("{0}")]
    Unfit(String),
}

impl Error {
    pub(crate) fn device(at: u64) -> impl Fn(io::Error) -> Self {
        move |error| Self::Device { at, reason: error.to_string() }
    }

    /// Whether a part of the index is damaged or cannot be read, and the rest may be well.
    pub(crate) fn is_of_index(&self) -> bool {
        matches!(self, Self::DamagedIndex { .. } | Self::UnreadIndex { .. })
    }

    /// Whether the drive is there, and a part of it is damaged: what is whole can be opened with
    /// [`OpenOptions::before_damage`](crate::OpenOptions::before_damage).
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Device { .. } | Self::Damaged { .. }) || self.is_of_index()
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
            Error::Damaged { .. } | Error::DamagedIndex { .. } => Self::Corrupt(error.to_string()),
            _ => Self::Unavailable(error.to_string()),
        }
    }
}
