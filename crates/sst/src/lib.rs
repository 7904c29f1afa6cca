//! Sorted tables of bytes: written once in the order of their keys, read by key or in order.
//!
//! Owns the format of a table (docs/format.md, "Sorted tables"), its writer, its readers, their cache, and the merge of
//! several of them. Refuses: to know what keys and values mean (a deletion's mark is a value like any other), to know where
//! a table lies (a sink takes its bytes, a [`Source`] gives them), and to trust a byte that it reads: whatever the bytes
//! are, a reader gives [`Error::Corrupt`] or an answer, and holds no more memory than a small multiple of what it read.
//!
//! Invariants: keys ascend strictly; every byte of a table is covered by a checksum that lies nearer to the footer, whose
//! checksum covers itself, so that a block of another table, or of an older one at the same place, is found out too.

#![forbid(unsafe_code)]

mod block;
mod cache;
mod cursor;
mod error;
mod filter;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod layout;
mod merge;
mod resume;
mod source;
mod table;
mod verify;
mod writer;

pub use cache::{Cache, Spread};
pub use cursor::Cursor;
pub use error::{Error, Result};
pub use merge::{Merge, Sorted};
pub use source::Source;
pub use table::Table;
pub use writer::{Options, Summary, Writer};

/// The longest key, in bytes.
pub const KEY_LEN_MAX: usize = (64 << 10) - 1;

/// The longest value, in bytes.
pub const VALUE_LEN_MAX: usize = 16 << 20;
