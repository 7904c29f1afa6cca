//! Worlds of several mounts of one volume whose metadata is in a database.
//!
//! Two to four machines mount the volume. Each has the engine of [`meta_remote`] with all its tasks, over a simulated database and a link with
//! faults, and a real `vfs::Filesystem`. Programs on them share files, names and locks. Machines die, return and unmount; links are cut, lose
//! connections, answers and notifications, and delay messages; the database is killed, and comes back, in some worlds without its newest
//! commits; wall clocks are set.
//!
//! Checked against the [`oracle`]:
//!
//! - an `open` shows all bytes of one write, which no write that was acknowledged before the open has replaced;
//! - strict mounts show each acknowledged change of names, and of bytes also through open files;
//! - each name is made and removed as often as the acknowledged calls say, and no file appears twice;
//! - two programs never have locks that exclude each other, for as long as their calls succeed; no increment made under a lock is lost;
//! - calls fail only after a fault, and end;
//! - when faults end, locks of dead machines are free after the stated time, all mounts show the same, and the metadata is consistent; after the
//!   stated silence, files that dead machines had open without a name are gone, and each object has a file.
//!
//! The engines' calls are synchronous, so the mounts run on threads that take turns ([`scheduler`]).

mod database;
mod machine;
mod network;
mod oracle;
mod program;
mod scheduler;
mod server;
mod sessions_world;

use crate::{Failure, Report, runner};

/// Runs the world of a seed.
pub fn world(seed: u64) -> Result<Report, Failure> {
    runner::run_seed::<sessions_world::SessionsWorld>(seed)
}

/// Returns the trace of a seed's world.
pub fn trace(seed: u64) -> Vec<String> {
    runner::trace::<sessions_world::SessionsWorld>(seed)
}
