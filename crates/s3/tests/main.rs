//! Tests of the endpoint over real connections.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod access;
mod admission;
mod checksums;
mod conformance;
mod encryption;
mod forms;
mod framing;
mod headers;
mod hostile;
mod lifecycle;
mod listing;
mod notify;
mod operations;
mod presigned;
mod raw;
mod sessions;
mod test_server;
mod users;
mod versions;
mod virtual_hosts;
