//! Corrections to the responses that `s3s` writes: statuses, headers, document elements and the rows of listings.
//!
//! The corrections follow from the request, and are applied once its response is there.

use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, EXPIRES, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use s3s::Body;

use crate::addressing::Resource;
use crate::checksum_elements;
use crate::error_document::{self, ErrorContext};
use crate::operations::has_parameter;
use crate::ops::contents_xml::ContentsXml;

/// Completes and corrects the response to one request.
#[derive(Debug)]
pub(crate) struct ResponseFixups {
    error_context: ErrorContext,
    document: DocumentFixup,
    status: Option<StatusCode>,
    /// The `Expires` header that a GET asks for by `response-expires`, verbatim.
    expires: Option<HeaderValue>,
}

/// The rewrite that a response document needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DocumentFixup {
    Unchanged,
    Checksums,
    /// GetObjectAttributes: unlike everywhere else, its etag has no quotes.
    Attributes,
}

impl DocumentFixup {
    fn of(head: &Parts) -> Self {
        let has = |word: &str| has_parameter(&head.uri, word);
        let is_copy = || head.headers.contains_key("x-amz-copy-source");
        match head.method {
            Method::GET if has("attributes") => Self::Attributes,
            Method::GET | Method::POST if has("uploadId") => Self::Checksums,
            Method::PUT if is_copy() => Self::Checksums,
            _ => Self::Unchanged,
        }
    }
}

impl ResponseFixups {
    pub(crate) fn of(head: &Parts, resource: &Resource) -> Self {
        let status = match head.method {
            Method::HEAD if has_parameter(&head.uri, "partNumber") => Some(StatusCode::PARTIAL_CONTENT),
            Method::PUT if resource.is_bucket() && has_parameter(&head.uri, "tagging") => {
                Some(StatusCode::NO_CONTENT)
            }
            _ => None,
        };
        let expires = requested_expires(&head.uri);
        Self { error_context: ErrorContext::of(head), document: DocumentFixup::of(head), status, expires }
    }

    /// Returns the corrected response. `id` is the request id.
    pub(crate) async fn apply(self, answer: Response<Body>, id: &str) -> Response<Body> {
        let mut answer = match answer.status().is_success() {
            true => self.fix_success(answer).await,
            false => error_document::complete(answer, &self.error_context, id).await,
        };
        if matches!(answer.status(), StatusCode::NOT_MODIFIED | StatusCode::NO_CONTENT) {
            *answer.body_mut() = Body::empty();
            answer.headers_mut().remove(CONTENT_LENGTH);
            answer.headers_mut().remove(CONTENT_TYPE);
        }
        answer
    }

    async fn fix_success(self, mut answer: Response<Body>) -> Response<Body> {
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
        if let Some(rows) = answer.extensions_mut().remove::<ContentsXml>() {
            return rewrite_body(answer, |xml| rows.insert_into(xml)).await;
        }
        match self.document {
            DocumentFixup::Unchanged => answer,
            DocumentFixup::Checksums => rewrite_body(answer, checksum_elements::from_carriers).await,
            DocumentFixup::Attributes => {
                rewrite_body(answer, |xml| without_quotes(&checksum_elements::from_carriers(xml))).await
            }
        }
    }
}

/// Rewrites the document in a response.
async fn rewrite_body(answer: Response<Body>, rewrite: impl FnOnce(&str) -> String) -> Response<Body> {
    let (mut head, body) = answer.into_parts();
    let Ok(body) = body.collect().await else { return Response::from_parts(head, Body::empty()) };
    let text = rewrite(&String::from_utf8_lossy(&body.to_bytes()));
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    Response::from_parts(head, Body::from(text))
}

fn without_quotes(xml: &str) -> String {
    xml.replace("<ETag>\"", "<ETag>").replace("\"</ETag>", "</ETag>").replace("&quot;", "")
}

fn requested_expires(uri: &Uri) -> Option<HeaderValue> {
    let query = uri.query()?.as_bytes();
    let (_, wanted) = url::form_urlencoded::parse(query).find(|(word, _)| word == "response-expires")?;
    HeaderValue::from_str(&wanted).ok()
}
