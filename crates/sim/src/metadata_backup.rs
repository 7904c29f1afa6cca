//! Worlds of the backup of metadata: random ops and passes of an exporter over a bucket with faults and crashes.
//!
//! The model is the history of the engine: a copy of it after every commit. A restoration must give one of these states, at least as
//! new as the newest one that the exporter reported as stored. Machines are replaced by restored ones, and an earlier machine must
//! stop. At the end, one object of the backup is damaged: the verification must find it, and a restoration must never give a state
//! that did not exist.

mod backup_world;

use crate::{Failure, Report};

/// Runs the world of a seed.
pub fn world(seed: u64) -> Result<Report, Failure> {
    backup_world::BackupWorld::run_seed(seed)
}
