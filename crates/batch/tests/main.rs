//! Tests of private namespaces, verification and merge.

#![expect(clippy::unwrap_used, reason = "tests")]

mod engine;
mod fixture;
mod forged_rows;
mod hostile;
mod job;
mod merging;
mod mutated_log;
mod private;
mod reduced;
mod rescue;
mod verdicts;
