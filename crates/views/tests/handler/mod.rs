//! Tests of the event handler.

mod filling;
mod measured;
mod random;
mod world;
