//! The access log: one record for each request, once its answer was sent or broken off.
//!
//! Refuses: to hold anything of a body, a signature or a secret. Text that clients choose is escaped, so that no request
//! can forge a line.

use http::{Method, Uri};
use percent_encoding::percent_decode_str;
use serde_json::json;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::Timestamp;

/// What is known of a request when it has ended.
#[derive(Debug, Clone)]
pub struct AccessRecord {
    /// When its head had arrived.
    pub time: Timestamp,
    /// The address that its connection comes from.
    pub peer: IpAddr,
    /// The access key of the user whose rights it had; `None` without a valid signature.
    pub user: Option<String>,
    /// Its method.
    pub method: Method,
    /// The S3 operation, as `GetObject`; `None` of a request that was refused before it was known.
    pub operation: Option<String>,
    /// The bucket that it names.
    pub bucket: Option<String>,
    /// The key that it names, percent-encoded as it came.
    pub key: Option<String>,
    /// The answer's status; 0 if the connection ended before there was one.
    pub status: u16,
    /// Bytes that were read of its body.
    pub received_bytes: u64,
    /// Bytes that were sent of the answer's body.
    pub sent_bytes: u64,
    /// From its head to the last byte of its answer.
    pub duration: Duration,
    /// The answer's `x-amz-request-id`.
    pub id: String,
}

/// Takes the records of an endpoint's requests. Must not block for long.
#[derive(Clone)]
pub struct AccessLog(Arc<dyn Fn(&AccessRecord) + Send + Sync>);

impl AccessLog {
    /// Calls `take` with each record.
    pub fn new(take: impl Fn(&AccessRecord) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    pub(crate) fn take(&self, record: &AccessRecord) {
        (self.0)(record);
    }
}

impl std::fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessLog").finish_non_exhaustive()
    }
}

impl AccessRecord {
    /// One line, without its end: time, address, user, method, operation, bucket, key, status, bytes received, bytes sent,
    /// duration in milliseconds, request id. `-` stands for what is not known.
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

    /// One JSON object on one line, without its end. The key is decoded; bytes that are no UTF-8 become U+FFFD.
    pub fn to_json(&self) -> String {
        let key = self.key.as_deref().map(|key| percent_decode_str(key).decode_utf8_lossy());
        json!({
            "time": self.time_text(),
            "peer": self.peer.to_string(),
            "user": self.user,
            "method": self.method.as_str(),
            "operation": self.operation,
            "bucket": self.bucket,
            "key": key,
            "status": self.status,
            "received_bytes": self.received_bytes,
            "sent_bytes": self.sent_bytes,
            "duration_ms": self.duration.as_secs_f64() * 1000.0,
            "request_id": self.id,
        })
        .to_string()
    }

    fn time_text(&self) -> String {
        let millis = i64::from(self.time.subsec_nanos() / 1_000_000);
        let time = jiff::Timestamp::from_millisecond(self.time.secs().saturating_mul(1000) + millis);
        time.map_or_else(|_| self.time.secs().to_string(), |time| format!("{time:.3}"))
    }
}

/// What separates the words and lines of a log, and whatever is not printable ASCII, percent-encoded.
fn escaped(text: &str) -> String {
    const WORD: percent_encoding::AsciiSet = percent_encoding::CONTROLS.add(b' ').add(b'"');
    percent_encoding::utf8_percent_encode(text, &WORD).to_string()
}

/// What the layers between head and answer learn of a request. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Learned(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    user: OnceLock<String>,
    operation: OnceLock<String>,
}

impl Learned {
    pub(crate) fn user(&self, user: &str) {
        self.0.user.set(user.to_owned()).ok();
    }

    /// Notes the operation of the request to which `extensions` belong.
    pub(crate) fn operation(extensions: &http::Extensions, operation: &str) {
        if let Some(learned) = extensions.get::<Self>() {
            learned.0.operation.set(operation.to_owned()).ok();
        }
    }
}

/// What an answer says of its request, among its extensions.
#[derive(Debug, Clone)]
pub(crate) struct Answered {
    pub(crate) id: String,
    pub(crate) bucket: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) learned: Learned,
}

impl Answered {
    pub(crate) fn user(&self) -> Option<String> {
        self.learned.0.user.get().cloned()
    }

    pub(crate) fn operation(&self) -> Option<String> {
        self.learned.0.operation.get().cloned()
    }
}

/// The key that a path names, as it is written there.
pub(crate) fn key_of(uri: &Uri, bucket: Option<&str>) -> Option<String> {
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
    fn a_line_is_one_line_whatever_clients_call_things() {
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
        assert_eq!(key_of(&uri("/b/k/l?x"), Some("b")).as_deref(), Some("k/l"));
        assert_eq!(key_of(&uri("/b"), Some("b")), None);
        assert_eq!(key_of(&uri("/k"), Some("b")).as_deref(), Some("k"));
        assert_eq!(key_of(&uri("/"), None), None);
    }
}
