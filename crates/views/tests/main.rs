//! Tests of rulesets.

#![expect(clippy::unwrap_used, reason = "tests")]

mod bounds;
mod handler;
mod patterns;
mod problems;
mod rulesets;
