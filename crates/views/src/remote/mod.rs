//! Serves a handler to clients in other processes: [`Views`](crate::Views) over HTTP.
//!
//! Owns the protocol (`docs/format.md`, "A handler over HTTP"), a server for any `Views`, and the client.
//!
//! Refuses: to know how the views are implemented; to wait for an answer without a timeout.
//!
//! Invariants: a client without the token learns nothing; bodies, connections, attempts and waits are bounded, except
//! the wait for a listing, during which the handler answers again and again; a client discards an answer that it
//! cannot decode completely.

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
    /// Parses a token from a line of a file: printable ASCII without spaces, which a header can hold.
    ///
    /// # Errors
    /// Reason why the token is invalid; does not contain the token itself.
    pub fn new(text: &str) -> Result<Self, &'static str> {
        match text.trim() {
            "" => Err("the token is empty"),
            token if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
                Err("a token must be one word of printable ASCII")
            }
            token => Ok(Self(token.to_owned())),
        }
    }

    /// Returns the value of the header `Authorization`.
    fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Returns whether `value` is the value of the header. Takes constant time, so that the duration does not tell
    /// how much of `value` is right.
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
