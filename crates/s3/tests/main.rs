//! Tests of the endpoint over real connections.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod access;
mod checksums;
mod clients;
mod hostile;
mod lifecycle;
mod notify;
mod raw;
mod sessions;
mod versions;
mod world;
