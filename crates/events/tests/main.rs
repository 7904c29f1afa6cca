//! Tests of the ways out and in.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod beanstalkd;
mod channel;
mod feed;
mod hearing;

mod receiver;
mod servers;
mod sqs;
mod webhook;
mod webhook_source;
