//! An S3 request before it is addressed and signed.

use super::request_counts::RequestKind;
use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use std::borrow::Cow;
use std::sync::Arc;
use store::{ETag, ObjectKey, Payload, Precondition, Result, StoreError};

/// The resource of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Service,
    Bucket,
    Object(ObjectKey),
}

/// A request that can be sent any number of times.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) kind: RequestKind,
    pub(super) method: Method,
    pub(super) bucket: Option<Arc<str>>,
    pub(super) target: Target,
    /// Query parameters, not yet encoded, in any order.
    pub(super) query: Vec<(&'static str, Cow<'static, str>)>,
    pub(super) headers: HeaderMap,
    pub(super) body: Payload,
    /// The body's CRC-64/NVME in base64, for its checksum header.
    pub(super) checksum: Option<String>,
    /// The source key of a copy.
    source: Option<ObjectKey>,
}

impl Call {
    /// Makes a request about no bucket, such as the listing of buckets.
    pub(super) fn service(kind: RequestKind, method: Method) -> Self {
        Self {
            kind,
            method,
            bucket: None,
            target: Target::Service,
            query: Vec::new(),
            headers: HeaderMap::new(),
            body: Payload::default(),
            checksum: None,
            source: None,
        }
    }

    pub(super) fn bucket_call(kind: RequestKind, method: Method, bucket: Arc<str>) -> Self {
        Self { bucket: Some(bucket), target: Target::Bucket, ..Self::service(kind, method) }
    }

    /// Makes a request about an object. Refuses keys that are not UTF-8, which S3 requires.
    pub(super) fn object(
        kind: RequestKind,
        method: Method,
        bucket: Arc<str>,
        key: &ObjectKey,
    ) -> Result<Self> {
        if std::str::from_utf8(key.as_bytes()).is_err() {
            let reason = "S3 keys must be UTF-8".to_owned();
            return Err(StoreError::InvalidKey { key: key.to_string(), reason });
        }
        Ok(Self { target: Target::Object(key.clone()), ..Self::bucket_call(kind, method, bucket) })
    }

    pub(super) fn query(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    pub(super) fn body(mut self, body: Payload) -> Self {
        self.body = body;
        self
    }

    /// Returns the source key of a copy; `None` for another request.
    pub(super) fn source(&self) -> Option<&ObjectKey> {
        self.source.as_ref()
    }

    pub(super) fn with_source(mut self, source: &ObjectKey) -> Self {
        self.source = Some(source.clone());
        self
    }

    /// Adds a precondition's header. Fails if the etag cannot be a header's value.
    pub(super) fn condition(self, precondition: &Precondition) -> Result<Self> {
        Ok(match precondition {
            Precondition::None => self,
            Precondition::Absent => self.header(IF_NONE_MATCH, HeaderValue::from_static("*")),
            Precondition::Matches(etag) => self.header(IF_MATCH, etag_value(etag)?),
        })
    }

    /// Returns the key of the object; `None` for a request about a bucket or the service.
    pub(super) fn key(&self) -> Option<&ObjectKey> {
        match &self.target {
            Target::Object(key) => Some(key),
            Target::Service | Target::Bucket => None,
        }
    }

    /// Returns the key of the object; for a listing the prefix; empty for a request about neither.
    pub(super) fn subject(&self) -> &[u8] {
        let prefix =
            || self.query.iter().find(|(name, _)| *name == "prefix").map(|(_, prefix)| prefix.as_bytes());
        self.key().map(ObjectKey::as_bytes).or_else(prefix).unwrap_or_default()
    }

    /// Returns the bucket's name, for error messages.
    pub(super) fn bucket(&self) -> &str {
        self.bucket.as_deref().unwrap_or_default()
    }

    /// Makes an error about the call's key, or `otherwise` if the call has no key.
    pub(super) fn with_key(
        &self,
        error: impl Fn(ObjectKey) -> StoreError,
        otherwise: impl FnOnce() -> StoreError,
    ) -> StoreError {
        self.key().map_or_else(otherwise, |key| error(key.clone()))
    }

    /// Returns whether the server moves data before it responds.
    pub(super) fn is_slow(&self) -> bool {
        matches!(self.kind, RequestKind::Copy | RequestKind::PartCopy | RequestKind::Complete)
    }
}

/// Returns an etag in quotes as the value of `If-Match`. `Invalid`: HTTP headers cannot contain it.
pub(super) fn etag_value(etag: &ETag) -> Result<HeaderValue> {
    HeaderValue::try_from(etag.quoted()).map_err(|_| {
        StoreError::Invalid(format!("invalid ETag {etag}: HTTP headers cannot contain these characters"))
    })
}
