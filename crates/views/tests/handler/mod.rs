//! Tests of the event handler.

mod filling;
mod random;
mod world;
