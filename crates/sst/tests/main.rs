//! Tests of tables as their users see them.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod damage;
mod fixture;
mod limits;
mod model;
mod sharing;
