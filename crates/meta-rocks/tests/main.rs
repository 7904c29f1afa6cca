//! Tests of the RocksDB engine.

#![expect(clippy::unwrap_used, reason = "tests")]

mod concurrent;
mod crash;
mod damage;
mod engines;
mod fixture;
mod journaled;
mod memory;
mod model;
mod reopen;
