//! Tests of the event handler.

mod believed;
mod filling;
mod measured;
mod random;
mod world;
