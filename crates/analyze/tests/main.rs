//! Integration tests with real servers, the running kernel and real loop devices. They need root, tracefs, MinIO, e2fsprogs, xfsprogs,
//! and 256 to 512 MiB of disk for each test.

#![expect(clippy::unwrap_used, reason = "tests")]

mod report;
mod systems;
mod trace;
