//! Worlds of the object drive: clients that do everything at once on a simulated device, whose power goes, which rots and fails.
//!
//! One seed makes a small drive and one to three clients, each with a bucket of its own, so that what a bucket must hold depends on
//! its client only, while commits, space and upkeep are everybody's. Futures are dropped at any await; the power goes in the middle of an
//! operation, of a checkpoint, and of an opening.
//!
//! What is checked, against the [`model`] of each bucket:
//!
//! - what was acknowledged is there, by every way to look at it: bytes, etag, attributes, tags, versions, pages, parts of uploads;
//! - what was in flight happened wholly or not at all, and what was seen of it stays;
//! - a reader reads what was there when it began, whatever happens meanwhile;
//! - index and space agree block by block, and when everything is deleted all but what an empty drive needs is free;
//! - a full drive refuses writes, and takes deletions;
//! - after rot: a clear error, or what was stored; never other bytes, never a panic.

mod array_world;
mod bucket_model;
mod compound_ops;
mod drive_client;
mod drive_world;
mod observe;
mod pool_world;
mod target;

use crate::{Failure, Report, runner};

/// Lives through the world of a seed.
pub fn world(seed: u64) -> Result<Report, Failure> {
    runner::run_seed::<drive_world::DriveWorld>(seed)
}

/// Lives through the world of a seed on an array of devices.
pub fn world_of_arrays(seed: u64) -> Result<Report, Failure> {
    runner::run_seed::<array_world::ArrayWorld>(seed)
}

/// Lives through the world of a seed on a pool of drives.
pub fn world_of_pools(seed: u64) -> Result<Report, Failure> {
    runner::run_seed::<pool_world::PoolWorld>(seed)
}

/// Everything that happens in the world of a seed on a pool of drives, line by line.
pub fn trace_of_pools(seed: u64) -> Vec<String> {
    runner::trace::<pool_world::PoolWorld>(seed)
}

/// Everything that happens in the world of a seed on an array of devices, line by line.
pub fn trace_of_arrays(seed: u64) -> Vec<String> {
    runner::trace::<array_world::ArrayWorld>(seed)
}

/// Everything that happens in the world of a seed, line by line.
pub fn trace(seed: u64) -> Vec<String> {
    runner::trace::<drive_world::DriveWorld>(seed)
}
