//! Integration tests of the crate, including the conformance tests of every implementation.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory;
mod wrap;
