//! Worlds of the object drive: concurrent clients on a simulated device with power cuts, corruption and I/O errors.
//!
//! One seed makes a small drive and one to three clients. Each client has a bucket of its own, so that the model of a bucket depends
//! on one client only, while commits, space and maintenance are shared. Futures are dropped at any await. Power cuts happen in the middle
//! of an operation, of a checkpoint, and of an opening.
//!
//! Checked against the [`bucket_model`] of each bucket:
//!
//! - acknowledged data is there in every view of it: bytes, etag, attributes, tags, versions, pages of listings, parts of uploads;
//! - an operation in flight happened completely or not at all, and an effect that was observed once stays;
//! - a reader gets the bytes that were there when it began, whatever changes in the meantime;
//! - index and space accounting agree block by block, and after all deletions only the space of an empty drive is in use;
//! - a full drive refuses writes and accepts deletions;
//! - after corruption a read returns the stored bytes or an error: never other bytes, and never a panic.

mod array_world;
mod bucket_model;
mod compound_ops;
mod drive_client;
mod drive_world;
mod observe;
mod pool_world;
mod session;
mod target;

use crate::{Failure, Report, runner};

/// Runs the world of a seed on one drive.
pub fn world(seed: u64) -> Result<Report, Failure> {
    runner::run_seed::<drive_world::DriveWorld>(seed)
}

/// Runs the world of a seed on an array of devices.
pub fn world_of_arrays(seed: u64) -> Result<Report, Failure> {
    runner::run_seed::<array_world::ArrayWorld>(seed)
}

/// Runs the world of a seed on a pool of drives.
pub fn world_of_pools(seed: u64) -> Result<Report, Failure> {
    runner::run_seed::<pool_world::PoolWorld>(seed)
}

/// Returns the trace of a seed's world on a pool of drives.
pub fn trace_of_pools(seed: u64) -> Vec<String> {
    runner::trace::<pool_world::PoolWorld>(seed)
}

/// Returns the trace of a seed's world on an array of devices.
pub fn trace_of_arrays(seed: u64) -> Vec<String> {
    runner::trace::<array_world::ArrayWorld>(seed)
}

/// Returns the trace of a seed's world on one drive.
pub fn trace(seed: u64) -> Vec<String> {
    runner::trace::<drive_world::DriveWorld>(seed)
}
