//! Tests of rulesets.

#![expect(clippy::unwrap_used, reason = "tests")]

mod bounds;
mod patterns;
mod problems;
mod rulesets;
