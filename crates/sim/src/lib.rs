//! Seeded worlds, for tests only: one seed is one world, with its own clock, random numbers and faults.
//!
//! Owns the simulated [`SimClock`] and the worlds that compare a layer of Tenon with a model while things fail.
//! Refuses: to read the machine's clock or environment, to start threads, and to be a dependency of the product.

mod clock;

pub use clock::SimClock;
