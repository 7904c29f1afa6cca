//! The persistent format of inodes, dentries, extents, quotas, numbers, ops, log records and the head record.
//!
//! Every record begins with a version byte. Numbers are varints (LEB128), signed numbers in zigzag encoding. Byte strings are
//! preceded by their length, optional values by 0 or 1. Decoding does not trust its input: any bytes give a value or a
//! [`DecodeError`].
//!
//! Invariants: `decode(encode(x)) == x`; every version ever written can be decoded, which golden tests check.

mod batch;
mod dentry;
mod head;
mod inode;
mod log;
mod number;
mod op;
mod primitives;
mod quota;
mod stored;

pub use crate::content::INLINE_EXTENTS_MAX;
pub use batch::{decode_batch, decode_refused_op, encode_batch, encode_refused_op};
pub use dentry::{decode_dentry, encode_dentry};
pub use head::{HEAD_VERSIONS, HeadRecord, decode_head, encode_head};
pub use inode::{InodeRecord, decode_extent, decode_inode, encode_extent, encode_inode};
pub use log::{
    append_to_log_page, decode_log_page, decode_log_record, decode_logged_run, encode_log_record,
    encode_logged_run,
};
pub use number::{decode_number, encode_number};
pub use op::{decode_op, encode_op};
pub use quota::{decode_quota, encode_quota};

pub(crate) use inode::{decode_extent_row, merge_inode};
pub(crate) use primitives::{Decoder, Encoder};
pub(crate) use quota::merge_quota;

/// Errors of decoding a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A newer Tenon wrote the record.
    #[error("{what} has version {found}, but this Tenon supports versions up to {known}: use a newer Tenon")]
    Version {
        /// The kind of record.
        what: &'static str,
        /// The version that the record has.
        found: u8,
        /// The newest version that this Tenon can decode.
        known: u8,
    },
    /// No version has this tag.
    #[error("{what} has the unknown tag {found}")]
    Tag {
        /// The kind of record or field.
        what: &'static str,
        /// The tag that the record has.
        found: u8,
    },
    /// The record ends too early.
    #[error("a record is truncated")]
    Truncated,
    /// The record is followed by other bytes.
    #[error("a record is followed by {0} unexpected bytes")]
    Trailing(usize),
    /// A field has an invalid value.
    #[error("a record contains {0}")]
    Field(&'static str),
}
