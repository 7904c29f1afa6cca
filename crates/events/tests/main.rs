//! Tests of the ways out.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod channel;
mod receiver;
mod webhook;
