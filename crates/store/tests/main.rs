//! Integration tests of the crate, including the conformance tests of every implementation.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod dir;
mod joined;
mod leases;
mod memory;
mod mover;
mod s3;
mod wrap;
mod writeback;
