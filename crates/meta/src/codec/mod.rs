//! The persistent form of inodes, dentries, extents, ops and log records.
//!
//! Every record begins with a version byte; numbers are varints (LEB128), signed ones in zigzag form, byte strings
//! carry their length, an optional value a 0 or 1 before it. Decoding trusts nothing: any bytes give a value or a
//! [`DecodeError`].
//!
//! Invariants: `decode(encode(x)) == x`; the golden tests hold the bytes of every version ever written.

mod dentry;
mod head;
mod inode;
mod log;
mod number;
mod op;
mod primitives;
mod quota;
mod stored;

pub use dentry::{decode_dentry, encode_dentry};
pub use head::{HeadRecord, decode_head, encode_head};
pub use inode::{INLINE_EXTENTS_MAX, InodeRecord, decode_extent, decode_inode, encode_extent, encode_inode};
pub use log::{decode_log_record, encode_log_record};
pub use number::{decode_number, encode_number};
pub use op::{decode_op, encode_op};
pub use quota::{decode_quota, encode_quota};

pub(crate) use inode::merge_inode;
pub(crate) use primitives::{Sink, Source};
pub(crate) use quota::merge_quota;

/// Why bytes are not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Written by a newer Tenon.
    #[error("{what} of version {found}, this program knows up to {known}: a newer Tenon wrote it")]
    Version {
        /// The kind of record.
        what: &'static str,
        /// The version found.
        found: u8,
        /// The newest version known.
        known: u8,
    },
    /// A tag that no version has.
    #[error("{what} with the unknown tag {found}")]
    Tag {
        /// The kind of record or field.
        what: &'static str,
        /// The tag found.
        found: u8,
    },
    /// The bytes end too early.
    #[error("a record ends too early")]
    Truncated,
    /// Bytes follow the record.
    #[error("{0} bytes follow a record")]
    Trailing(usize),
    /// A field holds what it cannot hold.
    #[error("a record holds {0}")]
    Field(&'static str),
}
