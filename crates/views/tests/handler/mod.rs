//! Tests of the event handler.

mod believed;
mod care;
mod filling;
mod measured;
mod random;
mod world;
