//! Tests of the endpoint over real connections.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod access;
mod admission;
mod checksums;
mod clients;
mod encryption;
mod forms;
mod framing;
mod headers;
mod hostile;
mod hosts;
mod lifecycle;
mod listing;
mod notify;
mod operations;
mod presigned;
mod raw;
mod sessions;
mod users;
mod versions;
mod world;
