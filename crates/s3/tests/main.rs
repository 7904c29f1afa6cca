//! Tests of the endpoint over real connections.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod access;
mod checksums;
mod clients;
mod forms;
mod framing;
mod headers;
mod hostile;
mod lifecycle;
mod notify;
mod raw;
mod sessions;
mod users;
mod versions;
mod world;
