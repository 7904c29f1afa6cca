//! Worlds of the namespace: random ops over an engine that fails and crashes.
//!
//! The *live* side is a [`meta::Namespace`] over an engine that loses conflicts, replies and its memory. The *model* is
//! an engine without faults that gets, op by op, what the live side's log says. Told outcomes, tables and log must agree
//! at every comparison; after a crash the live side is made again from its last checkpoint and the log that had
//! reached the disk.

mod faulty_engine;
mod namespace_world;
pub mod ops;

use crate::{Failure, Report};

/// Lives through the world of a seed.
pub fn world(seed: u64) -> Result<Report, Failure> {
    namespace_world::NamespaceWorld::new(seed).run()
}
