//! The drive from outside.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod conformance;
mod faults;
mod promises;
mod reopening;
mod start;
