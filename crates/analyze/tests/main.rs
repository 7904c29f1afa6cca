//! Real servers on real loop devices. Needs root, MinIO and e2fsprogs, and 256 MiB of disk for each test.

#![expect(clippy::unwrap_used, reason = "tests")]

mod systems;
