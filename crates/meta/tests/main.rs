//! Tests of the namespace as its users see it.

#![expect(clippy::unwrap_used, reason = "tests")]

mod fixture;
mod rules;
