//! Brokers, which keep messages for those who ask: what is common to their sources, and the scheme of the URL of each.
//!
//! All of them connect at the first question, end the connection at the first error, and connect anew at the next question, so
//! that whoever asks decides how often; the clients' own ways of trying again are off. What a URL says about a user and a password is
//! never shown.

mod amqp;
mod broker_url;
mod connection;
mod kafka;
mod nats;
mod redis;

use super::{Source, SourceError};
use url::Url;

pub use broker_url::{BrokerAccess, Login};

/// Whether a URL's scheme is a broker's, in the clear or with TLS.
pub(super) fn is_broker(scheme: &str) -> bool {
    matches!(scheme, "amqp" | "kafka" | "nats" | "redis") || is_encrypted(scheme)
}

/// Whether it is one with TLS; `tls` is NATS's own word.
pub(super) fn is_encrypted(scheme: &str) -> bool {
    matches!(scheme, "amqps" | "tls" | "rediss")
}

/// The source of a broker's URL: `amqp:` and `amqps:`, `kafka:`, `nats:` and `tls:` (NATS), `redis:` and `rediss:`. Nothing is asked of the broker yet.
///
/// # Errors
/// [`SourceError::Refused`], which says what is wrong.
pub fn open_broker(url: &str, access: &BrokerAccess) -> Result<Box<dyn Source>, SourceError> {
    let url = Url::parse(url).map_err(|error| SourceError::Refused(format!("a source's URL: {error}")))?;
    match url.scheme() {
        "amqp" | "amqps" => amqp::open(&url, access),
        "kafka" => kafka::open(&url, access),
        "nats" | "tls" => nats::open(&url, access),
        "redis" | "rediss" => redis::open(&url, access),
        other => Err(SourceError::Refused(format!("no broker's source is called '{other}'"))),
    }
}
