//! Errors of writing and reading tables.

/// An error of writing or reading a table. Every message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes are not a valid table.
    #[error("the table is damaged at byte {at}: {what}")]
    Corrupt {
        /// The damage, as a phrase.
        what: &'static str,
        /// The offset in the table of the damaged part, in bytes.
        at: u64,
    },
    /// The key to add is not greater than the key added before it.
    #[error("the key to add is not greater than the key before it")]
    OutOfOrder,
    /// A key, a value or an index exceeds the limits of a table.
    #[error("{what} of {len} bytes is too long for a table: the maximum is {max}")]
    TooLong {
        /// The thing that is too long, with its article.
        what: &'static str,
        /// The length in bytes of the thing that is too long.
        len: u64,
        /// The maximum length in bytes.
        max: u64,
    },
    /// Writing to the sink or reading from the source failed.
    #[error("the table's bytes could not be read or written: {0}")]
    Io(#[from] std::io::Error),
}

/// The result of writing or reading a table.
pub type Result<T, E = Error> = std::result::Result<T, E>;
