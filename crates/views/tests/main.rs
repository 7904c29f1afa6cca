//! Tests of rulesets.

#![expect(clippy::unwrap_used, reason = "tests")]

mod bounds;
mod patterns;
mod plain;
mod problems;
mod remote;
mod rulesets;
mod tree;
mod writing;
