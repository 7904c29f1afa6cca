//! Stores that stand in front of a bucket.
//!
//! Owns the write-back log ([`writeback`]), which acknowledges changes before the bucket has them; the rename mover
//! ([`mover`]), whose renames return at once; several buckets as one store ([`joined`]); leases in a bucket
//! ([`leases`]); and the types of conflicts ([`conflict`]). The first three are [`ObjectStore`](store::ObjectStore)s
//! over other stores.
//!
//! Out of scope: how a store reaches its objects; which of two conflicting objects keeps the key, which a callback
//! decides.
//!
//! Invariants: a change that was acknowledged is in a log or in the bucket; another client's object is replaced only
//! if a caller set no condition or one that it meets, or if the conflict callback decides so.

pub mod conflict;
mod etag_aliases;
mod log_encoding;

pub mod joined;
pub mod leases;
pub mod mover;
pub mod packs;
pub mod writeback;
