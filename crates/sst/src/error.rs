//! Why a table could not be written or read.

/// Every text is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bytes are not those of a table.
    #[error("the table is damaged at byte {at}: {what}")]
    Corrupt {
        /// What is wrong there.
        what: &'static str,
        /// Where the table's part that is wrong begins, in bytes from the table's beginning.
        at: u64,
    },
    /// A key was added that is not after the one added before.
    #[error("the key to add is not after the one before it")]
    OutOfOrder,
    /// A key, a value or an index has more bytes than a table can hold.
    #[error("{what} of {len} bytes is too long for a table: at most {max}")]
    TooLong {
        /// What is too long, with its article.
        what: &'static str,
        /// Its length in bytes.
        len: u64,
        /// The longest that there may be, in bytes.
        max: u64,
    },
    /// The sink did not take bytes, or the source did not give them.
    #[error("the table's bytes could not be read or written: {0}")]
    Io(#[from] std::io::Error),
}

/// What comes of reading or writing a table.
pub type Result<T, E = Error> = std::result::Result<T, E>;
