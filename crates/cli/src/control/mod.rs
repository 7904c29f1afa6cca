//! The protocol between commands and the daemon of a mount: one JSON object per line, over a Unix socket in the state
//! directory, which only the owner (and root) can enter.

pub(crate) mod client;
pub(crate) mod event_reports;
pub(crate) mod holder;
pub(crate) mod protocol;
pub(crate) mod server;
pub(crate) mod socket;
