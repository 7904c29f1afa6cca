//! Tests of the event handler.

mod believed;
mod filling;
mod random;
mod world;
