//! Tests of the event handler.

mod hint_order;
mod listing;
mod maintenance;
mod random;
mod stats;
mod world;
