//! Brokers, which store messages until they are fetched: the common parts of their sources, and the URL schemes.
//!
//! All sources connect at the first call, close the connection at the first error of receiving or acknowledging, and
//! connect anew at the next call. The caller therefore decides how often to retry; the retries of the client libraries
//! are off, or end after a few seconds. Users and passwords in URLs are never shown.

mod amqp;
mod broker_url;
mod connection;
mod kafka;
mod nats;
mod redis;

use events::{Source, SourceError};
use url::Url;

pub use broker_url::{BrokerAccess, Login};

/// Returns whether a URL scheme is that of a broker, with or without TLS.
pub(crate) fn is_broker(scheme: &str) -> bool {
    matches!(scheme, "amqp" | "kafka" | "nats" | "redis") || is_encrypted(scheme)
}

/// Returns whether a scheme means a broker with TLS; `tls` is NATS's own scheme.
pub(crate) fn is_encrypted(scheme: &str) -> bool {
    matches!(scheme, "amqps" | "tls" | "rediss")
}

/// Opens the source of a broker's URL: `amqp:` and `amqps:`, `kafka:`, `nats:` and `tls:` (NATS), `redis:` and `rediss:`. Nothing is sent to
/// the broker yet.
///
/// # Errors
/// [`SourceError::Refused`], which states what is wrong.
pub fn open_broker(url: &str, access: &BrokerAccess) -> Result<Box<dyn Source>, SourceError> {
    let url = Url::parse(url)
        .map_err(|error| SourceError::Refused(format!("the URL of a source is invalid: {error}")))?;
    match url.scheme() {
        "amqp" | "amqps" => amqp::open(&url, access),
        "kafka" => kafka::open(&url, access),
        "nats" | "tls" => nats::open(&url, access),
        "redis" | "rediss" => redis::open(&url, access),
        other => Err(SourceError::Refused(format!("no broker has the URL scheme '{other}'"))),
    }
}
