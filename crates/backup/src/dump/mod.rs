//! Dump files: all records of an engine as JSON lines, compressed by Zstandard.
//!
//! The first line is a [`Header`], each further line a record of one family of the key schema, and the last line states
//! the number of records and a checksum of all lines before it. Records are in the order of their keys, so that a file
//! can be written and read as a stream. The file does not depend on how an engine stores records.

mod load;
mod record;
mod text;
mod write;

pub use load::{DumpReader, has_records_of, load};
pub use write::write;

use crate::About;
use serde::{Deserialize, Serialize};

/// The format's name, in the first line.
const FORMAT: &str = "tenon-dump";
/// The version that this Tenon writes, and the only one that it reads.
const VERSION: u32 = 1;

/// The first line of a dump.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Always `tenon-dump`.
    format: String,
    /// Version of the format.
    version: u32,
    /// The volume that was dumped.
    #[serde(flatten)]
    pub about: About,
    /// When the dump was made, in nanoseconds since 1970.
    pub made_at: i64,
}

/// The last line of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    /// Number of records.
    end: u64,
    /// CRC-32C of all lines before this one.
    crc32c: u32,
}
