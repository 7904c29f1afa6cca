//! Tests of the endpoint over real connections.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod clients;
mod hostile;
mod world;
