//! Tests of the testbed as a whole: runs over directories and MinIO, and planted defects, each reported as exactly that. They need root for mounts,
//! and MinIO.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench_run;
mod defects;
mod fake;
mod minio;
mod resume;
