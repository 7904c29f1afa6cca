//! Tests of the testbed as a whole: runs over directories and MinIO, and planted defects, each reported as exactly that. They need root for mounts,
//! MinIO, and the Debian packages of scripts/test.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod actions;
mod bench_run;
mod counts;
mod defects;
mod fake;
mod foreign;
mod jobs;
mod minio;
mod packages;
mod page;
mod probe;
mod resume;
