//! Deterministic simulation, for tests only: one seed is one world with its own clock, random numbers and faults.
//!
//! Owns the simulated clocks, the simulated block device ([`device`]) and the worlds. Each world compares a layer of Tenon with a
//! model while faults are injected: [`namespace`] tests `meta`, [`files`] tests `vfs` with all layers below it, [`dual`] tests
//! files and objects of one volume with foreign writers in its bucket, [`drive`](crate::drive) tests the object drive, and [`metadata_backup`]
//! tests `backup`, [`batches`] tests `batch`, and [`sessions`] tests several mounts over `meta-remote`.
//! `cargo run -p sim -- --seed N` runs one seed again.
//!
//! Refuses: to read the machine's clock or environment, to start threads, and to be a dependency of the product.
//!
//! Invariant: the same seed gives the same world, step by step.

mod clock;
mod runner;
mod trace;
mod world;

pub mod batches;
pub mod device;
pub mod drive;
pub mod dual;
pub mod files;
pub mod metadata_backup;
pub mod namespace;
pub mod sessions;

pub use clock::{RuntimeClock, SimClock};
pub use world::{Failure, Report, WORLDS, World};
