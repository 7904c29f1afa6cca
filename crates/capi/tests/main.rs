//! Tests of the C library: its header, and C programs that use it with a real S3 server and real mounts.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod compiler;
mod header;
mod programs;
mod volumes;
