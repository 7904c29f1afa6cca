//! Tests of rulesets, the event handler, remote handlers and trees.

#![expect(clippy::unwrap_used, reason = "tests")]

mod bounds;
mod fake_handler;
mod handler;
mod memory;
mod parts;
mod patterns;
mod problems;
mod remote;
mod rulesets;
mod tree;
mod writing;
