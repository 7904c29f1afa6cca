//! Followers of the op log: parts of the mount that derive their state from committed ops.
//!
//! Owns the one follower of this mount, which notifies front ends of what to drop from their caches ([`op_log`]), the pure function that
//! derives this from an op ([`op_invalidations`]), and the queues of the front ends ([`front_ends`]).
//!
//! Invariants: code that commits an op notifies no front end; every drop follows from a committed op, or is one of the few requests that no
//! op stands for. If a front end cannot be notified of a change in time, it drops a whole directory or everything.
//!
//! An op of another mount of a shared engine is recognized by its mount number ([`op_log::OpLogFollower`]), and also concerns open files
//! ([`other_sessions`]). Changes that do not fit into a queue become one [`Invalidation::Directory`](invalidation::Invalidation::Directory)
//! for each directory.

pub(crate) mod front_ends;
pub(crate) mod invalidation;
pub(crate) mod op_invalidations;
pub(crate) mod op_log;
pub(crate) mod other_sessions;
