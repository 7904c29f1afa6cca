//! Names and attributes: everything Tenon knows about files, apart from their bytes.
//!
//! Owns inodes, dentries, extents and [`Op`], the one form of every namespace change; [`namespace::apply`], the
//! one function that gives an op its meaning; the key schema and the codecs of everything persistent; the
//! [`Engine`] seam with the memory engine, which is also the model for the others; and the numbered invariants.
//!
//! Refuses: to wait (nothing here is async), to know an open file, a kernel request or an S3 request, and to
//! read the clock: time, credentials and new inode numbers are arguments ([`Ctx`], [`Op`]).
//!
//! Invariants: `apply` is deterministic, so the op log replayed on an empty engine gives the same tables byte for
//! byte; an engine stores ordered bytes and knows nothing of their meaning but [`Merge`]; two ops conflict only
//! if one changes what the other read (creators in one directory do not); the state between two commits satisfies
//! [`invariants::fsck`].

mod allocate;
mod content;
mod engine;
mod error;
mod ino;
mod inode;
mod log_span;
mod memory;
mod merge;
mod moment;
mod name;
mod op;
mod quota;
mod txn;

pub mod acl;
pub mod codec;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod invariants;
pub mod namespace;
pub mod schema;

pub use content::{Content, Fingerprint, Summary};
pub use engine::{
    BatchRecord, Commit, CommitError, Condition, Engine, EngineError, KeyRange, LogCap, LogError, LoggedOp,
    Reader, Rows, Seqno, SortedRun, Value, Versioned,
};
pub use error::FsError;
pub use ino::Ino;
pub use inode::{Dentry, Extent, Inode, Kind, SETGID, Stored};
pub use log_span::LogSpan;
pub use memory::MemoryEngine;
pub use merge::Merge;
pub use moment::Moment;
pub use name::Name;
pub use namespace::Namespace;
pub use op::{Applied, AttrChanges, Ctx, Observed, Op, RenameHow, XattrHow};
pub use quota::{Limits, Quota, Usage};
pub use txn::{Staged, Txn};
