//! Uploads of any length: one request, or a multipart upload if the object is longer than a part.

use super::xml::Element;
use super::{Objects, body, path, read_document};
use crate::reply::Failure;
use bytes::Bytes;
use futures_util::stream::try_unfold;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use http::{Method, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use s3::Body;
use std::sync::Arc;
use tokio::sync::Mutex;

/// Maximum number of parts of an object.
const PARTS_MAX: u64 = 10_000;
/// Maximum length of a part, and of an object stored by one request, in bytes.
const PART_BYTES_MAX: u64 = 5 << 30;

/// An object to store.
#[derive(Debug, Clone)]
pub(crate) struct NewObject<'a> {
    pub(crate) bucket: &'a str,
    pub(crate) key: &'a str,
    pub(crate) content_type: Option<HeaderValue>,
    /// Length in bytes.
    pub(crate) size_bytes: u64,
    /// Whether an object with the same key is replaced. Otherwise the upload fails if there is one.
    pub(crate) replaces: bool,
}

impl Objects<'_> {
    /// Stores an object with the bytes of a body. Objects longer than `part_bytes` are uploaded in parts of this length,
    /// or longer ones if there would be more than [`PARTS_MAX`], one at a time.
    pub(crate) async fn upload(
        &self,
        object: &NewObject<'_>,
        bytes: Body,
        part_bytes: u64,
    ) -> Result<(), Failure> {
        let path = path(object.bucket, object.key);
        if object.size_bytes <= part_bytes.min(PART_BYTES_MAX) {
            let mut headers = object.headers();
            object.add_condition(&mut headers);
            headers.insert(CONTENT_LENGTH, HeaderValue::from(object.size_bytes));
            return self.send(Method::PUT, (&path, ""), headers, bytes).await.map(drop);
        }
        let part_bytes = part_bytes.max(object.size_bytes.div_ceil(PARTS_MAX)).min(PART_BYTES_MAX);
        let begun = self.send(Method::POST, (&path, "uploads="), object.headers(), body("")).await?;
        let id = super::encode(read_document(begun).await?.text("UploadId"));
        let stored = self.upload_parts((&path, &id), object, bytes, part_bytes).await;
        if stored.is_err() {
            // If the upload cannot be aborted either, its parts stay until a lifecycle rule removes them.
            self.send_without_body(Method::DELETE, (&path, &format!("uploadId={id}"))).await.ok();
        }
        stored
    }

    /// Uploads the parts of a multipart upload with an id, and completes it.
    async fn upload_parts(
        &self,
        (path, id): (&str, &str),
        object: &NewObject<'_>,
        bytes: Body,
        part_bytes: u64,
    ) -> Result<(), Failure> {
        let source = Arc::new(Mutex::new(Source { body: bytes, ahead: Bytes::new() }));
        let (mut left, mut parts) = (object.size_bytes, String::new());
        for number in 1.. {
            let length = left.min(part_bytes);
            let query = format!("partNumber={number}&uploadId={id}");
            let headers = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from(length))]);
            let stored =
                self.send(Method::PUT, (path, &query), headers, next_part(source.clone(), length)).await?;
            let etag = super::header_text(stored.headers(), &ETAG);
            let etag = quick_xml::escape::escape(etag.as_str());
            parts.push_str(&format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>"));
            left -= length;
            if left == 0 {
                break;
            }
        }
        let document = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
        let mut headers = HeaderMap::from_iter([(CONTENT_LENGTH, HeaderValue::from(document.len()))]);
        object.add_condition(&mut headers);
        let completed =
            self.send(Method::POST, (path, &format!("uploadId={id}")), headers, body(document)).await?;
        check_completed(&read_document(completed).await?)
    }
}

/// Refuses the response to a completion that is an error in spite of its status 200.
fn check_completed(document: &Element) -> Result<(), Failure> {
    match document.text("Code") {
        "" => Ok(()),
        _ => Err(Failure::new(StatusCode::BAD_GATEWAY, document.text("Message"))),
    }
}

impl NewObject<'_> {
    /// Returns the headers that describe the object.
    fn headers(&self) -> HeaderMap {
        self.content_type.iter().map(|content_type| (CONTENT_TYPE, content_type.clone())).collect()
    }

    /// Adds the condition that there is no object with the key, unless it may be replaced.
    fn add_condition(&self, headers: &mut HeaderMap) {
        if !self.replaces {
            headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
    }
}

/// Error of reading a body.
type BodyError = <Body as http_body::Body>::Error;

/// The bytes of an upload that no part has taken so far.
struct Source {
    body: Body,
    /// Bytes at the front that were already received from `body`.
    ahead: Bytes,
}

impl Source {
    /// Returns the next bytes, at most `bytes_max`; `None` at the end of the upload.
    async fn next(&mut self, bytes_max: u64) -> Result<Option<Bytes>, BodyError> {
        while self.ahead.is_empty() {
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => self.ahead = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Err(error),
            }
        }
        let length = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(self.ahead.len());
        Ok(Some(self.ahead.split_to(length)))
    }
}

/// Returns a body with the next `length` bytes of an upload. It ends early if the upload does.
fn next_part(source: Arc<Mutex<Source>>, length: u64) -> Body {
    let pieces = try_unfold((source, length), |(source, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let piece = source.lock().await.next(left).await;
        let then = |piece: Bytes| {
            let left = left - piece.len() as u64;
            (Frame::data(piece), (source, left))
        };
        piece.map(|piece| piece.map(then))
    });
    StreamBody::new(pieces).boxed_unsync()
}
