//! The response to a request: corrections to what `s3s` writes (statuses, headers, document elements, the rows of
//! listings), errors, CORS headers, and the facts for the access log.
//!
//! All of it follows from the request, and is applied once its outcome is there.

use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, EXPIRES, HeaderName, HeaderValue, SERVER};
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use s3s::dto::CORSConfiguration;
use s3s::{Body, S3Error, S3Result};

use crate::access_log::LogContext;
use crate::checksum_elements;
use crate::context::EndpointContext;
use crate::cors::CorsRequest;
use crate::encryption;
use crate::error_document::{self, ErrorContext};
use crate::operations::{Operation, ResponseFix};
use crate::ops::contents_xml::ContentsXml;
use crate::ops::settings;
use crate::query::Query;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

/// The facts of a request from which its response is completed.
#[derive(Debug)]
pub(crate) struct ResponseContext {
    pub(crate) error_context: ErrorContext,
    /// The operation, if the request was not refused at once.
    pub(crate) operation: Option<&'static Operation>,
    /// Whether the request is a HEAD of a part, whose response has the status 206.
    pub(crate) is_part: bool,
    /// The `Expires` header that a GET asks for by `response-expires`, verbatim.
    pub(crate) expires: Option<HeaderValue>,
    /// The cross-origin request, unless it is a preflight request.
    pub(crate) cors: Option<CorsRequest>,
    pub(crate) log: LogContext,
}

impl ResponseContext {
    /// Returns the completed response.
    pub(crate) async fn complete(
        self,
        response: Response<Body>,
        context: &EndpointContext,
    ) -> Response<Body> {
        let mut response = match response.status().is_success() {
            true => self.fix_success(response, context.encrypted).await,
            false => error_document::complete(response, &self.error_context, &self.log.id).await,
        };
        if matches!(response.status(), StatusCode::NOT_MODIFIED | StatusCode::NO_CONTENT) {
            *response.body_mut() = Body::empty();
            response.headers_mut().remove(CONTENT_LENGTH);
            response.headers_mut().remove(CONTENT_TYPE);
        }
        if let (Some(request), Some(bucket)) = (&self.cors, &self.log.bucket)
            && let Ok(Some(configuration)) = cors_configuration(context, bucket).await
        {
            response.headers_mut().extend(request.response_headers(&configuration).into_iter().flatten());
        }
        if let Ok(id) = HeaderValue::from_str(&self.log.id) {
            response.headers_mut().insert(REQUEST_ID, id);
        }
        response.headers_mut().insert(SERVER, HeaderValue::from_static("Tenon"));
        response.extensions_mut().insert(self.log);
        response
    }

    /// Adds to a successful response what `s3s` does not write.
    async fn fix_success(&self, mut response: Response<Body>, is_encrypted: bool) -> Response<Body> {
        if response.status() == StatusCode::OK
            && let Some(status) = self.status(&response)
        {
            *response.status_mut() = status;
        }
        if let Some(expires) = &self.expires {
            response.headers_mut().insert(EXPIRES, expires.clone());
        }
        if is_encrypted && self.operation.is_some_and(Operation::shows_encryption) {
            let (name, value) = encryption::RESPONSE_HEADER;
            response.headers_mut().insert(name, value);
        }
        if let Some(rows) = response.extensions_mut().remove::<ContentsXml>() {
            return rewrite_body(response, |xml| rows.insert_into(xml)).await;
        }
        match self.operation.map(|operation| operation.response_fix) {
            Some(ResponseFix::Checksums) => rewrite_body(response, checksum_elements::from_carriers).await,
            Some(ResponseFix::Attributes) => {
                rewrite_body(response, |xml| without_quotes(&checksum_elements::from_carriers(xml))).await
            }
            _ => response,
        }
    }

    /// Returns the status that replaces 200, if any.
    fn status(&self, response: &Response<Body>) -> Option<StatusCode> {
        // HEAD of a range has the same status as GET.
        let is_partial = self.is_part || response.headers().contains_key(CONTENT_RANGE);
        match self.operation.map(|operation| operation.response_fix) {
            Some(ResponseFix::NoContent) => Some(StatusCode::NO_CONTENT),
            _ => is_partial.then_some(StatusCode::PARTIAL_CONTENT),
        }
    }
}

/// Returns whether a request asks for the status 206 of a part, which `s3s` does not set for HEAD.
pub(crate) fn is_part_head(method: &Method, query: &Query) -> bool {
    *method == Method::HEAD && query.has("partNumber")
}

/// Returns the response to a refused request.
pub(crate) fn error_response(error: S3Error) -> Response<Body> {
    error.to_http_response().unwrap_or_else(|_| {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

/// Returns a bucket's CORS configuration; `None` if the bucket or its configuration does not exist.
pub(crate) async fn cors_configuration(
    context: &EndpointContext,
    bucket: &str,
) -> S3Result<Option<CORSConfiguration>> {
    let Ok(bucket) = context.open_bucket(bucket).await else { return Ok(None) };
    bucket.setting(settings::CORS).await
}

/// Rewrites the document in a response.
async fn rewrite_body(answer: Response<Body>, rewrite: impl FnOnce(&str) -> String) -> Response<Body> {
    let (mut head, body) = answer.into_parts();
    let Ok(body) = body.collect().await else { return Response::from_parts(head, Body::empty()) };
    let text = rewrite(&String::from_utf8_lossy(&body.to_bytes()));
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(text.len()));
    Response::from_parts(head, Body::from(text))
}

/// Returns XML whose etags have no quotes.
fn without_quotes(xml: &str) -> String {
    xml.replace("<ETag>\"", "<ETag>").replace("\"</ETag>", "</ETag>").replace("&quot;", "")
}

/// Returns the `Expires` header that a GET asks for.
pub(crate) fn requested_expires(query: &Query) -> Option<HeaderValue> {
    HeaderValue::from_str(query.get("response-expires")?).ok()
}
