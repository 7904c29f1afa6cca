//! A handler for clients elsewhere: [`Views`](crate::Views) over HTTP.
//!
//! Owns the protocol (`docs/format.md`, "A handler over HTTP"), its server in front of any `Views` and its client.
//!
//! Refuses: to know what is behind the seam; to wait for a handler without end.
//!
//! Invariants: who has not the token hears nothing; bodies, connections, waits and attempts are bounded; a client believes no
//! answer of which it does not understand all.

mod client;
mod server;
mod service;
mod wire;

pub use client::{RemoteConfig, RemoteError, RemoteViews};
pub use server::{RemoteServer, Report, Served};
#[cfg(feature = "fuzz")]
pub use wire::fuzz_messages;

/// A secret that server and clients share, sent as a bearer token (RFC 6750).
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// From a line of a file: what a header can hold, without spaces.
    ///
    /// # Errors
    /// What is wrong with it, without saying it.
    pub fn new(text: &str) -> Result<Self, &'static str> {
        match text.trim() {
            "" => Err("the token is empty"),
            token if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err("a token is one word of printable ASCII")
            }
            token => Ok(Self(token.to_owned())),
        }
    }

    /// The value of the header `Authorization`.
    fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Whether this is the value of the header; how long that takes does not say how much of it is right.
    fn is_header(&self, value: &[u8]) -> bool {
        let header = self.header();
        let differs = header.bytes().zip(value).fold(0, |differs, (ours, theirs)| differs | (ours ^ theirs));
        header.len() == value.len() && differs == 0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}
