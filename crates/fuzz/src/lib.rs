//! Fuzzing with hostile input: random mutations of known inputs against all code that reads bytes from outside or from a disk.
//!
//! Owns the list of targets, the mutations, the coverage-guided search, and the limits of time and memory. The targets and their
//! assertions are next to the code that they test (`store::fuzz`, `s3::fuzz`, `events::fuzz`, `sst::fuzz`).
//!
//! Coverage is known only in builds by `cargo xtask fuzz`, which instruments the workspace's crates with edge counters
//! (`instrument`). Other builds (`cargo test`) run the corpus and unguided mutations of it.

pub mod corpus;
mod coverage;
mod memory;
mod mutate;
mod search;
mod targets;

pub use search::{Outcome, minimize, run};
pub use targets::{TARGETS, Target};
