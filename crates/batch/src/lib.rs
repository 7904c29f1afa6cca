//! Batches: private namespaces whose changes one commit adds to a volume, after they were verified.
//!
//! A job begins a [`PrivateNamespace`] over a snapshot of the volume. Its ops go to a map in memory and a log on the local disk, and to no
//! server. [`PrivateNamespace::seal`] makes the batch a directory of two files: the ops, and the rows that they change. [`merge`] verifies a
//! sealed batch against the present state of the volume and adds it as one [run](meta::Run).
//!
//! Owns the map, the local log, sealed batches, verification and merge. Does not know how a batch reaches a server, and has no
//! implementation of what ops mean: a private namespace and a verifier are both [`meta::namespace::apply`] over an `Overlay`.
//!
//! Invariants:
//! - what a merge adds to a volume is the effect of `apply` on ops that `meta::access` permits to the batch's user, in the order of the log;
//! - an op is added, or it is in the list of refused ops;
//! - nothing that a sealed batch says about itself is believed: user, lease and times come from the server ([`Terms`]).

mod base;
mod bulk_txn;
mod canonical;
mod change;
mod inode_rows;
mod local_map;
mod merge;
mod op_log;
mod overlay;
mod private_namespace;
mod reduced;
mod sealed;
mod table_error;
mod verify;

pub use merge::{MergeError, Merged, Proof, merge};
pub use op_log::LogDamage;
pub use private_namespace::{JobError, JobOptions, PrivateNamespace};
pub use sealed::SealedBatch;
pub use verify::{Refusal, Refused, Rejected, Terms};
