//! The crate seen from outside: every implementation of the seams against `store::conformance`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod dir;
mod joined;
mod leases;
mod memory;
mod mover;
mod s3;
mod wrap;
mod writeback;
