//! Worlds of one namespace changed from both sides, and from behind: a program through the file system, clients of the
//! endpoint, and a stranger who goes to the bucket itself, all over the same few keys.
//!
//! The machine, the weather and the crashes are those of [`crate::files`]. A life is made of rounds: in each, everybody
//! does some things at the same time, while calls fail, take their time, and the machine may crash; then everybody
//! stops, the weather is fine, and what is there is compared. The stranger's changes are told as hints
//! (`Filesystem::reconcile`) that are lost, late, repeated and out of order.
//!
//! What is checked, against the [`history`] of each key:
//!
//! - every read, of a file or an object, is all that one change left, and no older than is promised;
//! - an error has a reason: a call of the store that failed, or something that somebody else did;
//! - of several conditional changes that exclude each other one at most succeeds;
//! - when everybody has stopped, the endpoint lists what a walk through the files shows and what the bucket holds, byte
//!   for byte; each key is what a change left that no later one replaced; what lost to the bucket is in `lost+found`;
//!   the tables are sound, and a mount that knows nothing sees the same.

mod conditional_writes;
mod dual_world;
mod endpoint_client;
mod file_client;
mod foreign_writer;
mod key_history;
mod open_file;
mod quiescent_check;
mod shared_state;

use crate::{Failure, Report, runner};

/// Lives through the world of a seed.
pub fn world(seed: u64) -> Result<Report, Failure> {
    runner::run_seed::<dual_world::DualWorld>(seed)
}

/// Everything that happens in the world of a seed, line by line.
pub fn trace(seed: u64) -> Vec<String> {
    runner::trace::<dual_world::DualWorld>(seed)
}
