//! Tests of the sources, with real brokers and a double of SQS.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod beanstalkd;
mod brokers;
mod recording_feed;
mod sqs;
