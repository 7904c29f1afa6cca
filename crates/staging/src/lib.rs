//! Stores that stand in front of a bucket.
//!
//! Owns the write-back log ([`writeback`]), which acknowledges changes before the bucket has them; the rename mover
//! ([`mover`]), whose renames return at once; leases in the bucket ([`leases`]); and several buckets as one store
//! ([`joined`]); and the words of conflicts ([`conflict`]). Each is an [`ObjectStore`](store::ObjectStore) over any other, except leases, which use one.
//!
//! Out of scope: how a store reaches its objects; which of two conflicting objects keeps the key, which a callback
//! decides.
//!
//! Invariants: a change that was acknowledged is in a log or in the bucket; another client's object is replaced only
//! when a caller's condition or the conflict callback says so.

pub mod conflict;
mod etag_aliases;
mod log_encoding;

pub mod joined;
pub mod leases;
pub mod mover;
pub mod writeback;
