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

mod client;
mod conditions;
mod history;
mod judge;
mod life;
mod open;
mod program;
mod stage;
mod stranger;

use crate::{Failure, Report, living};

/// Lives through the world of a seed.
pub fn world(seed: u64) -> Result<Report, Failure> {
    living::world::<life::World>(seed)
}

/// Everything that happens in the world of a seed, line by line.
pub fn tale(seed: u64) -> Vec<String> {
    living::tale::<life::World>(seed)
}
