//! Tests of private namespaces, verification and merge.

#![expect(clippy::unwrap_used, reason = "tests")]

mod fixture;
mod forged_rows;
mod hostile;
mod job;
mod merging;
mod private;
mod reduced;
