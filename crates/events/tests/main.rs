//! Tests of publishing and receiving events.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod channel;
mod feed;
mod recording_sink;

mod notifying_servers;
mod receiver;
mod webhook;
mod webhook_source;
