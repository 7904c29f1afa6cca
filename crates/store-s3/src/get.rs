//! HEAD and GET. The module `body` receives the body.

use super::body::Body;
use super::client::{CHECKSUM, Client};
use super::failure::Failure;
use super::request_counts::RequestKind;
use super::retry::Retry;
use super::{S3Store, call, headers};
use futures_util::StreamExt;
use futures_util::stream;
use http::header::{HeaderName, HeaderValue, IF_MATCH, RANGE};
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use std::ops::Range;
use std::sync::Arc;
use store::{ETag, GetOptions, Object, ObjectKey, ObjectMeta, Result, StoreError, VersionId};

const CHECKSUM_MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");

/// Maximum size of objects that are returned only after all bytes were received and the server's checksum was verified,
/// if the server sent one. Larger objects are streamed, and a wrong checksum at the end is an error.
const VERIFIED_BYTES_MAX: u64 = 8 << 20;

impl S3Store {
    pub(super) async fn head_object(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        self.head_version(key, None).await
    }

    /// Describes a version of an object; `None` means the current one.
    async fn head_version(&self, key: &ObjectKey, version: Option<&VersionId>) -> Result<ObjectMeta> {
        let mut call = self.call(RequestKind::Head, Method::HEAD, key)?;
        if let Some(version) = version {
            call = call.query("versionId", version.to_string());
        }
        let mut retry = self.client.retry();
        let meta = self
            .client
            .fetch_as(&call, &mut retry, |answer| headers::object_meta(key, &answer.headers))
            .await?;
        self.client.learned.uncopied_attributes.note(&meta.attributes);
        self.client.learned.part_copies.note_size(meta.size_bytes);
        Ok(meta)
    }

    pub(super) async fn get_object(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        if let Some(range) = options.range.as_ref().filter(|range| range.is_empty()) {
            return self.get_nothing(key, &options, range.start).await;
        }
        let source = Source { store: self.clone(), key: key.clone(), version: options.version };
        let mut retry = self.client.retry();
        loop {
            let opened = source.open(options.range.clone(), options.if_match.as_ref(), &mut retry).await?;
            retry.record_success();
            let (meta, size_bytes) = (opened.meta.clone(), opened.meta.size_bytes);
            self.client.learned.uncopied_attributes.note(&meta.attributes);
            self.client.learned.part_copies.note_size(size_bytes);
            let has_sum = opened.crc64nvme.is_some();
            let body = Body::of(source.clone(), opened);
            if !has_sum || size_bytes > VERIFIED_BYTES_MAX {
                return Ok(Object { meta, body: body.stream() });
            }
            match body.verified().await {
                Ok(body) => return Ok(Object { meta, body }),
                Err(failure) => retry.wait_or_fail(failure).await?,
            }
        }
    }

    /// Reads an empty range, which HTTP cannot express, by a HEAD of the version. The etag and the start of the range are
    /// checked.
    async fn get_nothing(&self, key: &ObjectKey, options: &GetOptions, start: u64) -> Result<Object> {
        let meta = self.head_version(key, options.version.as_ref()).await?;
        if options.if_match.as_ref().is_some_and(|etag| *etag != meta.object.etag) {
            return Err(StoreError::PreconditionFailed(key.clone()));
        }
        if start > meta.size_bytes {
            return Err(StoreError::InvalidRange(key.clone()));
        }
        Ok(Object { meta, body: stream::empty().boxed() })
    }
}

/// Formats a range for its header. Servers use signed numbers, so a range with a huge end is left open.
fn range_text(range: &Range<u64>) -> String {
    if range.end > i64::MAX as u64 {
        return format!("bytes={}-", range.start);
    }
    format!("bytes={}-{}", range.start, range.end - 1)
}

/// The object that a body is read from; it can be opened again for the rest of a body.
#[derive(Debug, Clone)]
pub(super) struct Source {
    store: S3Store,
    key: ObjectKey,
    version: Option<VersionId>,
}

/// A response whose body contains the given range of the object.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) meta: ObjectMeta,
    pub(super) body: Incoming,
    /// The range of the object that `body` has.
    pub(super) range: Range<u64>,
    /// The server's checksum of the object; `None` for a range, or if the server has none.
    pub(super) crc64nvme: Option<String>,
}

impl Source {
    /// Sends the request, with retries, until there is a correct response.
    pub(super) async fn open(
        &self,
        range: Option<Range<u64>>,
        if_match: Option<&ETag>,
        retry: &mut Retry,
    ) -> Result<Opened, Failure> {
        let mut call = self.store.call(RequestKind::Get, Method::GET, &self.key)?;
        match &range {
            Some(range) => call = call.header(RANGE, headers::value("range", &range_text(range))?),
            None if self.client().config.checksums => {
                call = call.header(CHECKSUM_MODE, HeaderValue::from_static("ENABLED"));
            }
            None => {}
        }
        if let Some(etag) = if_match {
            call = call.header(IF_MATCH, call::etag_value(etag)?);
        }
        if let Some(version) = &self.version {
            call = call.query("versionId", version.to_string());
        }
        loop {
            let answered = self.client().attempt(&call, retry).await;
            match answered.and_then(|response| self.opened(response, range.as_ref(), if_match)) {
                Ok(opened) => return Ok(opened),
                Err(failure) => retry.wait_or_fail(failure).await?,
            }
        }
    }

    /// Checks that the response matches the request.
    fn opened(
        &self,
        response: Response<Incoming>,
        asked: Option<&Range<u64>>,
        if_match: Option<&ETag>,
    ) -> Result<Opened, Failure> {
        let (head, body) = response.into_parts();
        let meta = headers::object_meta(&self.key, &head.headers)?;
        if if_match.is_some_and(|etag| *etag != meta.object.etag) {
            return Err(Failure::malformed(format!("'{}' has another ETag than requested", self.key)));
        }
        let range = match (asked, headers::content_range(&head.headers)) {
            (None, _) if head.status == StatusCode::OK => 0..meta.size_bytes,
            // The server may return the whole object for a range that covers it.
            (Some(asked), None) if asked.start == 0 && asked.end >= meta.size_bytes => 0..meta.size_bytes,
            (Some(asked), Some(got)) if got.first == asked.start && got.last < asked.end => {
                got.first..got.last + 1
            }
            _ => return Err(Failure::malformed(format!("'{}' has another range than requested", self.key))),
        };
        // The response may end early only at the object's end.
        if asked.is_some_and(|asked| range.end < asked.end.min(meta.size_bytes)) {
            return Err(Failure::malformed(format!("'{}' has a shorter range than requested", self.key)));
        }
        let sum = head.headers.get(CHECKSUM).filter(|_| asked.is_none() && range == (0..meta.size_bytes));
        let crc64nvme = sum.and_then(|sum| sum.to_str().ok()).map(str::to_owned);
        Ok(Opened { meta, body, range, crc64nvme })
    }

    pub(super) fn client(&self) -> &Arc<Client> {
        &self.store.client
    }
}
