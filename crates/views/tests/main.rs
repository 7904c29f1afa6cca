//! Tests of rulesets.

#![expect(clippy::unwrap_used, reason = "tests")]

mod bounds;
mod handler;
mod parts;
mod patterns;
mod plain;
mod problems;
mod remote;
mod rulesets;
mod tree;
mod writing;
