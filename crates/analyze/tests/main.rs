//! Real servers and real kernels on real loop devices. Needs root, tracefs, MinIO, e2fsprogs and xfsprogs, and 256 to
//! 512 MiB of disk for each test.

#![expect(clippy::unwrap_used, reason = "tests")]

mod report;
mod systems;
mod trace;
