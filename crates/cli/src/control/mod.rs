//! The protocol between commands and the daemon of a mount: one JSON object per line, over a Unix socket in the state
//! directory, which only the owner (and root) can enter.

pub(crate) mod client;
pub(crate) mod protocol;
pub(crate) mod server;
pub(crate) mod socket;
