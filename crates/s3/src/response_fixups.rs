//! Corrections to the responses that `s3s` writes: statuses, headers, document elements and the rows of listings.
//!
//! The corrections follow from the request, and are applied once its response is there.

use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, EXPIRES, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use s3s::Body;

use crate::addressing::Named;
use crate::checksum_elements;
use crate::error_document::{self, Asked};
use crate::operation_table::has_word;
use crate::ops::contents_xml::Rows;

/// Completes and corrects the response to one request.
#[derive(Debug)]
pub(crate) struct Mending {
    asked: Asked,
    document: Document,
    status: Option<StatusCode>,
    /// The `Expires` header that a GET asks for by `response-expires`, verbatim.
    expires: Option<HeaderValue>,
}

/// The rewrite that a response document needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Document {
    Nothing,
    Checksums,
    /// GetObjectAttributes: unlike everywhere else, its etag has no quotes.
    Attributes,
}

impl Document {
    fn of(head: &Parts) -> Self {
        let has = |word: &str| has_word(&head.uri, word);
        let is_copy = || head.headers.contains_key("x-amz-copy-source");
        match head.method {
            Method::GET if has("attributes") => Self::Attributes,
            Method::GET | Method::POST if has("uploadId") => Self::Checksums,
            Method::PUT if is_copy() => Self::Checksums,
            _ => Self::Nothing,
        }
    }
}

impl Mending {
    pub(crate) fn of(head: &Parts, named: &Named) -> Self {
        let status = match head.method {
            Method::HEAD if has_word(&head.uri, "partNumber") => Some(StatusCode::PARTIAL_CONTENT),
            Method::PUT if named.is_bucket() && has_word(&head.uri, "tagging") => {
                Some(StatusCode::NO_CONTENT)
            }
            _ => None,
        };
        let expires = wanted_expires(&head.uri);
        Self { asked: Asked::of(head), document: Document::of(head), status, expires }
    }

    /// Returns the corrected response. `id` is the request id.
    pub(crate) async fn mend(self, answer: Response<Body>, id: &str) -> Response<Body> {
        let mut answer = match answer.status().is_success() {
            true => self.mend_success(answer).await,
            false => error_document::completed(answer, &self.asked, id).await,
        };
        if matches!(answer.status(), StatusCode::NOT_MODIFIED | StatusCode::NO_CONTENT) {
            *answer.body_mut() = Body::empty();
            answer.headers_mut().remove(CONTENT_LENGTH);
            answer.headers_mut().remove(CONTENT_TYPE);
        }
        answer
    }

    async fn mend_success(self, mut answer: Response<Body>) -> Response<Body> {
        // HEAD of a range has the same status as GET.
        let ranged = answer.headers().contains_key(CONTENT_RANGE).then_some(StatusCode::PARTIAL_CONTENT);
        if answer.status() == StatusCode::OK
            && let Some(status) = self.status.or(ranged)
        {
            *answer.status_mut() = status;
        }
        if let Some(expires) = self.expires {
            answer.headers_mut().insert(EXPIRES, expires);
        }
        if let Some(rows) = answer.extensions_mut().remove::<Rows>() {
            return rewritten(answer, |xml| rows.within(xml)).await;
        }
        match self.document {
            Document::Nothing => answer,
            Document::Checksums => rewritten(answer, checksum_elements::named).await,
            Document::Attributes => {
                rewritten(answer, |xml| without_quotes(&checksum_elements::named(xml))).await
            }
        }
    }
}

/// Rewrites the document in a response.
async fn rewritten(answer: Response<Body>, rewrite: impl FnOnce(&str) -> String) -> Response<Body> {
    let (mut head, body) = answer.into_parts();
    let Ok(body) = body.collect().await else { return Response::from_parts(head, Body::empty()) };
    let text = rewrite(&String::from_utf8_lossy(&body.to_bytes()));
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    Response::from_parts(head, Body::from(text))
}

fn without_quotes(xml: &str) -> String {
    xml.replace("<ETag>\"", "<ETag>").replace("\"</ETag>", "</ETag>").replace("&quot;", "")
}

fn wanted_expires(uri: &Uri) -> Option<HeaderValue> {
    let query = uri.query()?.as_bytes();
    let (_, wanted) = url::form_urlencoded::parse(query).find(|(word, _)| word == "response-expires")?;
    HeaderValue::from_str(&wanted).ok()
}
