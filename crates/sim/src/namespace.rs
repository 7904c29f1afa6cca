//! Worlds of the namespace: random ops over an engine with faults and crashes.
//!
//! The *live* side is a [`meta::Namespace`] over an engine with conflicts, lost replies and crashes. The *model* is
//! an engine without faults that applies the live side's log op by op. The reported outcomes, the tables and the log must agree
//! at each comparison. After a crash the live side is restored from its last checkpoint and the part of the log that had
//! reached the disk.

pub mod engine_model;
pub(crate) mod faulty_engine;
mod namespace_world;
pub mod ops;

use crate::{Failure, Report};

/// Runs the world of a seed.
pub fn world(seed: u64) -> Result<Report, Failure> {
    namespace_world::NamespaceWorld::new(seed).run()
}
