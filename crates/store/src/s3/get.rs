//! Reading: HEAD and GET. What becomes of the body is in `body`.

use super::body::Body;
use super::client::{CHECKSUM, Client};
use super::counts::RequestKind;
use super::failure::Failure;
use super::retry::Retry;
use super::{S3Store, call, headers};
use crate::{ETag, GetOptions, Object, ObjectKey, ObjectMeta, Result, StoreError, VersionId};
use futures_util::StreamExt;
use futures_util::stream;
use http::header::{HeaderName, HeaderValue, IF_MATCH, RANGE};
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use std::ops::Range;
use std::sync::Arc;

const CHECKSUM_MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");

/// Whole objects up to this length are handed on when all of their bytes have come and have the sum that the server
/// keeps; others have to be asked for again if they end with another.
const VERIFIED_BYTES_MAX: u64 = 8 << 20;

impl S3Store {
    pub(super) async fn head_object(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        let call = self.call(RequestKind::Head, Method::HEAD, key)?;
        let mut retry = self.client.retry();
        let meta = self
            .client
            .fetch_as(&call, &mut retry, |answer| headers::object_meta(key, &answer.headers))
            .await?;
        self.client.uncopied.saw(&meta.attributes);
        self.client.part_copies.saw(meta.size_bytes);
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
            retry.succeeded();
            let (meta, size_bytes) = (opened.meta.clone(), opened.meta.size_bytes);
            self.client.uncopied.saw(&meta.attributes);
            self.client.part_copies.saw(size_bytes);
            let has_sum = opened.crc64nvme.is_some();
            let body = Body::of(source.clone(), opened);
            if !has_sum || size_bytes > VERIFIED_BYTES_MAX {
                return Ok(Object { meta, body: body.stream() });
            }
            match body.verified().await {
                Ok(body) => return Ok(Object { meta, body }),
                Err(failure) => retry.after(failure).await?,
            }
        }
    }

    /// An empty range has no form on the wire; the conditions hold all the same.
    async fn get_nothing(&self, key: &ObjectKey, options: &GetOptions, start: u64) -> Result<Object> {
        let meta = self.head_object(key).await?;
        if options.if_match.as_ref().is_some_and(|etag| *etag != meta.object.etag) {
            return Err(StoreError::PreconditionFailed(key.clone()));
        }
        if start > meta.size_bytes {
            return Err(StoreError::InvalidRange(key.clone()));
        }
        Ok(Object { meta, body: stream::empty().boxed() })
    }
}

/// A range as the header holds it. Servers compute with signed numbers, so one that ends beyond any object is left
/// open.
fn range_text(range: &Range<u64>) -> String {
    if range.end > i64::MAX as u64 {
        return format!("bytes={}-", range.start);
    }
    format!("bytes={}-{}", range.start, range.end - 1)
}

/// What a body is read from, again if need be.
#[derive(Debug, Clone)]
pub(super) struct Source {
    store: S3Store,
    key: ObjectKey,
    version: Option<VersionId>,
}

/// An answer that is about to give these bytes of the object.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) meta: ObjectMeta,
    pub(super) body: Incoming,
    pub(super) range: Range<u64>,
    /// The sum of the bytes, where they are the whole object and the server keeps it.
    pub(super) crc64nvme: Option<String>,
}

impl Source {
    /// Sends the request until it is answered as it should be.
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
                Err(failure) => retry.after(failure).await?,
            }
        }
    }

    /// Checks that the answer is what was asked for.
    fn opened(
        &self,
        response: Response<Incoming>,
        asked: Option<&Range<u64>>,
        if_match: Option<&ETag>,
    ) -> Result<Opened, Failure> {
        let (head, body) = response.into_parts();
        let meta = headers::object_meta(&self.key, &head.headers)?;
        if if_match.is_some_and(|etag| *etag != meta.object.etag) {
            return Err(Failure::nonsense(format!("'{}' with another tag than asked for", self.key)));
        }
        let range = match (asked, headers::content_range(&head.headers)) {
            (None, _) if head.status == StatusCode::OK => 0..meta.size_bytes,
            // A range that is the whole object needs no other answer than the whole object.
            (Some(asked), None) if asked.start == 0 && asked.end >= meta.size_bytes => 0..meta.size_bytes,
            (Some(asked), Some(got)) if got.first == asked.start && got.last < asked.end => {
                got.first..got.last + 1
            }
            _ => return Err(Failure::nonsense(format!("'{}' in another range than asked for", self.key))),
        };
        // The end may lie before the one asked for only where the object ends.
        if asked.is_some_and(|asked| range.end < asked.end.min(meta.size_bytes)) {
            return Err(Failure::nonsense(format!("'{}' in a shorter range than asked for", self.key)));
        }
        let sum = head.headers.get(CHECKSUM).filter(|_| asked.is_none() && range == (0..meta.size_bytes));
        let crc64nvme = sum.and_then(|sum| sum.to_str().ok()).map(str::to_owned);
        Ok(Opened { meta, body, range, crc64nvme })
    }

    pub(super) fn client(&self) -> &Arc<Client> {
        &self.store.client
    }
}
