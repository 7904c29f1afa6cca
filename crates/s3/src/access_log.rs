//! The access log: one record per request, written when its response has been sent or has broken off.
//!
//! Refuses: to record anything of a body, a signature or a secret. Text chosen by clients is escaped, so that no
//! request can forge a line.

use http::{Method, Uri};
use percent_encoding::percent_decode_str;
use serde_json::json;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::Timestamp;

/// The log record of a finished request.
#[derive(Debug, Clone)]
pub struct AccessRecord {
    /// The time at which the request's head had arrived.
    pub time: Timestamp,
    /// The client's address.
    pub peer: IpAddr,
    /// The access key of the user in whose name the request acted; `None` without a valid signature.
    pub user: Option<String>,
    /// The HTTP method.
    pub method: Method,
    /// The S3 operation, such as `GetObject`; `None` if the request was refused before its operation was known.
    pub operation: Option<String>,
    /// The requested bucket.
    pub bucket: Option<String>,
    /// The requested key, percent-encoded as received.
    pub key: Option<String>,
    /// The status of the response; 0 if the connection ended before there was one.
    pub status: u16,
    /// Bytes read of the request body.
    pub received_bytes: u64,
    /// Bytes sent of the response body.
    pub sent_bytes: u64,
    /// The time from the request's head to the last byte of the response.
    pub duration: Duration,
    /// The response's `x-amz-request-id`.
    pub id: String,
}

/// A sink for the records of an endpoint's requests. It is called on the runtime's threads and must not block for long.
#[derive(Clone)]
pub struct AccessLog(Arc<dyn Fn(&AccessRecord) + Send + Sync>);

impl AccessLog {
    /// Returns a log that calls `take` with each record.
    pub fn new(take: impl Fn(&AccessRecord) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    pub(crate) fn write(&self, record: &AccessRecord) {
        (self.0)(record);
    }
}

impl std::fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessLog").finish_non_exhaustive()
    }
}

impl AccessRecord {
    /// Formats the record as one line without a line break: time, address, user, method, operation, bucket, key,
    /// status, bytes received, bytes sent, duration in milliseconds, request id. Unknown fields are `-`.
    pub fn to_text(&self) -> String {
        let or_dash = |text: Option<&str>| match text {
            Some(text) if !text.is_empty() => escaped(text),
            _ => "-".to_owned(),
        };
        format!(
            "{} {} {} {} {} {} {} {} {} {} {:.3} {}",
            self.time_text(),
            self.peer,
            or_dash(self.user.as_deref()),
            escaped(self.method.as_str()),
            or_dash(self.operation.as_deref()),
            or_dash(self.bucket.as_deref()),
            or_dash(self.key.as_deref()),
            self.status,
            self.received_bytes,
            self.sent_bytes,
            self.duration.as_secs_f64() * 1000.0,
            self.id,
        )
    }

    /// Formats the record as a JSON object on one line without a line break. The key is decoded; invalid UTF-8 becomes
    /// U+FFFD.
    pub fn to_json(&self) -> String {
        json!({
            "time": self.time_text(),
            "peer": self.peer.to_string(),
            "user": self.user,
            "method": self.method.as_str(),
            "operation": self.operation,
            "bucket": self.bucket,
            "key": self.decoded_key(),
            "status": self.status,
            "received_bytes": self.received_bytes,
            "sent_bytes": self.sent_bytes,
            "duration_ms": self.duration.as_secs_f64() * 1000.0,
            "request_id": self.id,
        })
        .to_string()
    }

    /// Returns the decoded key. Invalid UTF-8 becomes U+FFFD.
    pub fn decoded_key(&self) -> Option<String> {
        self.key.as_deref().map(|key| percent_decode_str(key).decode_utf8_lossy().into_owned())
    }

    fn time_text(&self) -> String {
        let millis = i64::from(self.time.subsec_nanos() / 1_000_000);
        let time = jiff::Timestamp::from_millisecond(self.time.secs().saturating_mul(1000) + millis);
        time.map_or_else(|_| self.time.secs().to_string(), |time| format!("{time:.3}"))
    }
}

/// Percent-encodes spaces, quotes, control characters and everything that is not ASCII.
fn escaped(text: &str) -> String {
    const WORD: percent_encoding::AsciiSet = percent_encoding::CONTROLS.add(b' ').add(b'"');
    percent_encoding::utf8_percent_encode(text, &WORD).to_string()
}

/// Facts about a request that later layers find out, for the access log. Clones share one value.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestFacts(Arc<Facts>);

/// The facts of one request, each set once.
#[derive(Debug, Default)]
struct Facts {
    user: OnceLock<String>,
    operation: OnceLock<String>,
}

impl RequestFacts {
    pub(crate) fn note_user(&self, user: &str) {
        self.0.user.set(user.to_owned()).ok();
    }

    pub(crate) fn note_operation(&self, name: &str) {
        self.0.operation.set(name.to_owned()).ok();
    }
}

/// The request data that the server needs for the access log, passed in the extensions of the response.
#[derive(Debug, Clone)]
pub(crate) struct LogContext {
    pub(crate) id: String,
    pub(crate) bucket: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) facts: RequestFacts,
}

impl LogContext {
    pub(crate) fn user(&self) -> Option<String> {
        self.facts.0.user.get().cloned()
    }

    pub(crate) fn operation(&self) -> Option<String> {
        self.facts.0.operation.get().cloned()
    }
}

/// Returns the key of a request path, still encoded.
pub(crate) fn encoded_key(uri: &Uri, bucket: Option<&str>) -> Option<String> {
    let path = uri.path().trim_start_matches('/');
    let key = match bucket.and_then(|bucket| path.strip_prefix(bucket)) {
        Some("") => "",
        Some(rest) if rest.starts_with('/') => &rest[1..],
        _ => path,
    };
    (!key.is_empty()).then(|| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_cannot_be_forged() {
        let record = AccessRecord {
            time: Timestamp::from_secs(1_700_000_000, 5_000_000),
            peer: IpAddr::from([127, 0, 0, 1]),
            user: Some("alice".to_owned()),
            method: Method::PUT,
            operation: Some("PutObject".to_owned()),
            bucket: Some("b\nforged".to_owned()),
            key: Some("a%20b%0Ac".to_owned()),
            status: 200,
            received_bytes: 7,
            sent_bytes: 0,
            duration: Duration::from_micros(1500),
            id: "ABC".to_owned(),
        };
        assert_eq!(
            record.to_text(),
            "2023-11-14T22:13:20.005Z 127.0.0.1 alice PUT PutObject b%0Aforged a%20b%0Ac 200 7 0 1.500 ABC"
        );
        let json: serde_json::Value = serde_json::from_str(&record.to_json()).unwrap();
        assert_eq!(json["key"], "a b\nc");
        assert!(!record.to_json().contains('\n'));
    }

    #[test]
    fn keys_are_what_follows_the_bucket() {
        let uri = |path: &str| path.parse::<Uri>().unwrap();
        assert_eq!(encoded_key(&uri("/b/k/l?x"), Some("b")).as_deref(), Some("k/l"));
        assert_eq!(encoded_key(&uri("/b"), Some("b")), None);
        assert_eq!(encoded_key(&uri("/k"), Some("b")).as_deref(), Some("k"));
        assert_eq!(encoded_key(&uri("/"), None), None);
    }
}
