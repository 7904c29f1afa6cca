//! Tests of the event handler.

mod random;
mod world;
