//! Tests of the ways out, and of the ways in.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod channel;
mod receiver;
mod source;
mod webhook;
