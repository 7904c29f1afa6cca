//! The protocol between commands and the process that mounts or serves a volume: one JSON object per line, over a Unix socket in the state
//! directory, which only the owner (and root) can enter.

pub(crate) mod batch_protocol;
pub(crate) mod cache_messages;
pub(crate) mod client;
mod conflict_messages;
mod drive_messages;
pub(crate) mod event_reports;
pub(crate) mod holder;
pub(crate) mod live_messages;
pub(crate) mod profile_row;
pub(crate) mod protocol;
pub(crate) mod server;
pub(crate) mod socket;
pub(crate) mod verification_protocol;
