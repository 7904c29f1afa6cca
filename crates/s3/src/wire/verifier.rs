//! Signatures of whole requests: the protocol layer checks them, over each request as it came.

use http::Request;
use http::request::Parts;
use s3s::auth::Credentials;
use s3s::route::S3Route;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::validation::NameValidation;
use s3s::{Body, S3, S3Request, S3Response, S3Result, s3_error};
use std::sync::{Arc, OnceLock};

use crate::sessions::Sessions;

/// Stands for trailers that a client may leave out; it is none of the headers that are signed.
const NO_TRAILER: http::HeaderValue = http::HeaderValue::from_static("none");

/// Knows who signed a request.
#[derive(Debug, Clone)]
pub(crate) struct Verifier(S3Service);

impl Verifier {
    pub(crate) fn new(sessions: Sessions) -> Self {
        let mut builder = S3ServiceBuilder::new(Nothing);
        builder.set_auth(sessions);
        builder.set_route(Note);
        builder.set_validation(AnyName);
        Self(builder.build())
    }

    /// Who signed a request; `None`: nobody did. An error is the answer to what is signed wrongly.
    ///
    /// `body` is looked at only where a signature is over it, with nothing in the headers that says so (STS).
    pub(crate) async fn verify(
        &self,
        head: &Parts,
        body: Body,
    ) -> Result<Option<Credentials>, Box<http::Response<Body>>> {
        let noted = Noted::default();
        let mut request = Request::new(body);
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = head.uri.clone();
        *request.version_mut() = head.version;
        *request.headers_mut() = head.headers.clone();
        request.headers_mut().entry("x-amz-trailer").or_insert(NO_TRAILER);
        request.extensions_mut().insert(noted.clone());
        let answer = self.0.call(request).await;
        match (noted.0.get(), answer) {
            (Some(signer), _) => Ok(signer.clone()),
            (None, Ok(answer)) => Err(Box::new(answer)),
            (None, Err(error)) => {
                tracing::warn!(?error, "a signature could not be checked");
                let error = s3_error!(InternalError, "We encountered an internal error, please try again.");
                Err(Box::new(error.to_http_response().unwrap_or_default()))
            }
        }
    }
}

/// Who signed, as the protocol layer found.
#[derive(Debug, Clone, Default)]
struct Noted(Arc<OnceLock<Option<Credentials>>>);

/// Takes any text for a bucket's name: where the host names the bucket, a path begins with the key.
struct AnyName;

impl NameValidation for AnyName {
    fn validate_bucket_name(&self, _name: &str) -> bool {
        true
    }
}

/// Implements no operation.
struct Nothing;

impl S3 for Nothing {}

/// Takes each request that is signed rightly, or not at all.
struct Note;

#[async_trait::async_trait]
impl S3Route for Note {
    fn is_match(
        &self,
        _method: &http::Method,
        _uri: &http::Uri,
        _headers: &http::HeaderMap,
        _extensions: &mut http::Extensions,
    ) -> bool {
        true
    }

    async fn check_access(&self, _request: &mut S3Request<Body>) -> S3Result<()> {
        Ok(())
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        if let Some(noted) = request.extensions.get::<Noted>() {
            noted.0.set(request.credentials).ok();
        }
        Ok(S3Response::new(Body::empty()))
    }
}
