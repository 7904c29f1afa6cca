//! Hostile input: random changes of known inputs, thrown at everything that reads bytes from outside or from a disk.
//!
//! Owns the targets' list, the mutations, the search for inputs that take new ways through the code, and the limits of
//! time and memory; the targets and what they assert are beside the code that they test (`store::fuzz`, `s3::fuzz`, `events::fuzz`, `sst::fuzz`).
//!
//! New ways are seen in builds by `cargo xtask fuzz`, which has the workspace's crates count their edges
//! (`instrument`). Other builds (`cargo test`) run the kept inputs and blind changes of them.

pub mod corpus;
mod coverage;
mod memory;
mod mutate;
mod search;
mod targets;

pub use search::{Outcome, minimal, run};
pub use targets::{TARGETS, Target};
