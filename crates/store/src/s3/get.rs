//! Reading: HEAD, GET, and a body that survives a broken connection.

use super::client::Client;
use super::counts::RequestKind;
use super::failure::Failure;
use super::retry::Retry;
use super::{S3Store, call, headers};
use crate::{ETag, GetOptions, Object, ObjectKey, ObjectMeta, Result, StoreError, VersionId};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http::header::{IF_MATCH, RANGE};
use http::{Method, Response, StatusCode};
use hyper::body::Incoming;
use std::ops::Range;
use std::sync::Arc;

impl S3Store {
    pub(super) async fn head_object(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        let call = self.call(RequestKind::Head, Method::HEAD, key)?;
        let mut retry = self.client.retry();
        let meta = self
            .client
            .fetch_as(&call, &mut retry, |answer| headers::object_meta(key, &answer.headers))
            .await?;
        Ok(meta)
    }

    pub(super) async fn get_object(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        if let Some(range) = options.range.as_ref().filter(|range| range.is_empty()) {
            return self.get_nothing(key, &options, range.start).await;
        }
        let source = Source { store: self.clone(), key: key.clone(), version: options.version };
        let mut retry = self.client.retry();
        let opened = source.open(options.range.clone(), options.if_match.as_ref(), &mut retry).await?;
        retry.succeeded();
        Ok(Object { meta: opened.meta.clone(), body: source.stream(opened) })
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
#[derive(Debug)]
struct Source {
    store: S3Store,
    key: ObjectKey,
    version: Option<VersionId>,
}

/// An answer that is about to give these bytes of the object.
#[derive(Debug)]
struct Opened {
    meta: ObjectMeta,
    body: Incoming,
    range: Range<u64>,
}

/// A body on its way.
struct Reading {
    source: Source,
    etag: ETag,
    /// `None` after a failure, until the next attempt.
    body: Option<Incoming>,
    left: Range<u64>,
}

impl Source {
    /// Sends the request until it is answered as it should be.
    async fn open(
        &self,
        range: Option<Range<u64>>,
        if_match: Option<&ETag>,
        retry: &mut Retry,
    ) -> Result<Opened, Failure> {
        let mut call = self.store.call(RequestKind::Get, Method::GET, &self.key)?;
        if let Some(range) = &range {
            call = call.header(RANGE, headers::value("range", &range_text(range))?);
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
        Ok(Opened { meta, body, range })
    }

    fn stream(self, opened: Opened) -> BoxStream<'static, Result<Bytes>> {
        let etag = opened.meta.object.etag;
        let reading = Reading { source: self, etag, body: Some(opened.body), left: opened.range };
        stream::try_unfold(reading, |mut reading| async move {
            Ok(reading.next().await?.map(|piece| (piece, reading)))
        })
        .boxed()
    }

    fn client(&self) -> &Arc<Client> {
        &self.store.client
    }
}

impl Reading {
    /// The next piece. A connection that breaks or stalls is replaced by a request for the rest of the same
    /// object, within the limits of a call; each piece that arrives starts them anew.
    async fn next(&mut self) -> Result<Option<Bytes>> {
        if self.left.is_empty() {
            return Ok(None);
        }
        let failure = match self.read().await {
            Ok(piece) => return Ok(Some(piece)),
            Err(failure) => failure,
        };
        let client = self.source.store.client.clone();
        let mut retry = client.retry();
        retry.attempt();
        retry.after(failure).await.map_err(StoreError::from)?;
        loop {
            let opened = self.source.open(Some(self.left.clone()), Some(&self.etag), &mut retry).await?;
            self.body = Some(opened.body);
            match self.read().await {
                Ok(piece) => {
                    retry.progressed();
                    return Ok(Some(piece));
                }
                Err(failure) => retry.after(failure).await?,
            }
        }
    }

    async fn read(&mut self) -> Result<Bytes, Failure> {
        let body = self.body.as_mut().ok_or_else(|| Failure::silence("no connection"))?;
        let piece = match self.source.store.client.frame(body).await {
            Ok(Some(piece)) if piece.len() as u64 <= self.left.end - self.left.start => piece,
            Ok(Some(_)) => return Err(self.broken(Failure::nonsense("a body that is too long"))),
            Ok(None) => return Err(self.broken(Failure::nonsense("a body that ends too early"))),
            Err(failure) => return Err(self.broken(failure)),
        };
        self.left.start += piece.len() as u64;
        Ok(piece)
    }

    fn broken(&mut self, failure: Failure) -> Failure {
        self.body = None;
        failure
    }
}
