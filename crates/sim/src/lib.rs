//! Seeded worlds, for tests only: one seed is one world, with its own clock, random numbers and faults.
//!
//! Owns the simulated clocks, the simulated block device ([`device`]) and the worlds, each of which compares a layer of Tenon with a model while things fail:
//! [`namespace`] for `meta`, [`files`] for `vfs` with all below it, [`dual`] for files and objects of one volume, with others in
//! its bucket, [`drive`](crate::drive) for the object drive. `cargo run -p sim -- --seed N` runs one again.
//!
//! Refuses: to read the machine's clock or environment, to start threads, and to be a dependency of the product.
//!
//! Invariant: the same seed gives the same world, step by step.

mod clock;
mod runner;
mod trace;
mod world;

pub mod device;
pub mod drive;
pub mod dual;
pub mod files;
pub mod namespace;

pub use clock::{RuntimeClock, SimClock};
pub use world::{Failure, Report, WORLDS, World};
