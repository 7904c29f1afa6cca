//! Sorted string tables (SST): immutable files of key-value entries, written once in key order, read by key or by scan.
//!
//! Owns the format of a table (docs/format.md, "Sorted tables"), its writer, its readers, their cache, and the merge of
//! several tables. Refuses three things. It does not interpret keys and values: a tombstone is a value like any other. It does
//! not know where a table is stored: a sink takes the bytes, a [`Source`] returns them; [`TableFile`] is one for files. It does not trust the bytes that it
//! reads: for any input a reader returns [`Error::Corrupt`] or an answer, and uses at most a small multiple of the memory read.
//!
//! Invariants: keys ascend strictly. Every byte of a table is covered by a checksum that is stored nearer to the footer, and the
//! footer's checksum covers the footer. A block of another table, or of an older table at the same offset, is therefore detected.

#![forbid(unsafe_code)]

mod block;
mod cache;
mod chunk_cursor;
mod cursor;
mod error;
mod file;
mod filter;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod last_before;
mod layout;
mod merge;
mod merge_policy;
mod resume;
mod source;
mod table;
mod verify;
mod writer;

pub use cache::{Cache, Spread};
pub use chunk_cursor::{ChunkCursor, ChunkSource};
pub use cursor::Cursor;
pub use error::{Error, Result};
pub use file::{FileTable, NewTableFile, TableFile};
pub use merge::{Merge, Sorted};
pub use merge_policy::tables_to_merge;
pub use source::Source;
pub use table::Table;
pub use writer::{Options, Summary, Writer};

/// Maximum length of a key, in bytes.
pub const KEY_LEN_MAX: usize = (64 << 10) - 1;

/// Maximum length of a value, in bytes.
pub const VALUE_LEN_MAX: usize = 16 << 20;
