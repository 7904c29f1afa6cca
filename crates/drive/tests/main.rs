//! Integration tests of the drive.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod array;
mod concurrency;
mod conformance;
mod damage;
mod faults;
mod fixture;
mod kv;
mod layout;
mod pool;
mod reading;
mod reopening;
mod scrubbing;
mod semantics;
mod unreadable;
mod versions;
mod writing;
