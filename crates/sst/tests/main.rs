//! Tests of tables through the public interface.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod damage;
mod fixture;
mod limits;
mod model;
mod sharing;
