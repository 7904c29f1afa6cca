//! The metadata of a volume: names, attributes and the location of file contents, but not the contents themselves.
//!
//! Owns:
//! - inodes, dentries and extents;
//! - [`Op`], which represents every namespace change, and [`namespace::apply`], which defines what each op does;
//! - the key schema and the codecs of all persistent records;
//! - the [`Engine`] trait, and the in-memory engine, which is also the reference model for other engines;
//! - the numbered invariants.
//!
//! Nothing here is async, knows open files, kernel requests or S3 requests, or reads the clock: time, credentials and new
//! inode numbers are arguments ([`OpContext`], [`Op`]).
//!
//! Invariants:
//! - `apply` is deterministic: replaying the op log on an empty engine gives the same tables, byte for byte;
//! - an engine stores ordered bytes and interprets none of them, except to apply a [`Merge`];
//! - two ops conflict only if one changes what the other read, so creates in one directory do not conflict;
//! - the state between two commits satisfies [`invariants::fsck`].

mod allocate;
mod batch;
mod content;
mod engine;
mod error;
mod extent;
mod ino;
mod inode;
mod kind;
mod log_span;
mod memory;
mod merge;
mod moment;
mod name;
mod op;
mod quota;
mod record;
mod run;
mod stored_locks;
mod txn;

pub mod access;
pub mod acl;
pub mod codec;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod invariants;
pub mod namespace;
pub mod schema;

pub use allocate::Allocator;
pub use batch::{Batch, BatchId, BatchOutcome, RefusedOp};
pub use content::{Content, Fingerprint, Summary};
pub use engine::{Commit, Condition, Engine, LogCap, LoggedOp, News, OpRecord, Reader};
pub use error::{CommitError, EngineError, FsError, LogError};
pub use extent::{Extent, Stored};
pub use ino::Ino;
pub use inode::{Dentry, Inode, SETGID};
pub use kind::Kind;
pub use log_span::LogSpan;
pub use memory::MemoryEngine;
pub use merge::Merge;
pub use moment::Moment;
pub use name::Name;
pub use namespace::{Namespace, SeenName};
pub use op::{Applied, AttrChanges, Effect, Observed, Op, OpContext, Origin, Refreshed, RenameHow, XattrHow};
pub use quota::{Limits, Quota, Usage};
pub use record::{DentryWithInode, KeyRange, Rows, Seqno, Value, Versioned};
pub use run::{LOG_PAGE_OPS, LogPager, LoggedRun, Run, RunBuilder, RunKeys, RunRecord};
pub use stored_locks::{LockChange, Locker, StoredLocks};
pub use txn::{Staged, Txn};
