//! Tests of the development tools with real programs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod manifests;
mod package;
