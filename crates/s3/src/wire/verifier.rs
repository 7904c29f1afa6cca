//! Verification of request signatures. `s3s` does it, over each request as received.

use http::Request;
use http::request::Parts;
use s3s::auth::Credentials;
use s3s::route::S3Route;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::validation::NameValidation;
use s3s::{Body, S3, S3Request, S3Response, S3Result, s3_error};
use std::sync::{Arc, OnceLock};

use crate::sessions::Sessions;

/// Stands for the header `x-amz-trailer` where a client sends none, since `s3s` expects it. Clients do not sign it.
const NO_TRAILER: http::HeaderValue = http::HeaderValue::from_static("none");

/// Verifies the signatures of requests.
#[derive(Debug, Clone)]
pub(crate) struct Verifier(S3Service);

impl Verifier {
    pub(crate) fn new(sessions: Sessions) -> Self {
        let mut builder = S3ServiceBuilder::new(NoOperations);
        builder.set_auth(sessions);
        builder.set_route(RecordSigner);
        builder.set_validation(AcceptAnyName);
        Self(builder.build())
    }

    /// Returns the credentials that signed a request; `None` if it is unsigned. The error is the response to a wrong
    /// signature.
    ///
    /// `body` is read only if the signature covers it without a header that says so (STS).
    pub(crate) async fn verify(
        &self,
        head: &Parts,
        body: Body,
    ) -> Result<Option<Credentials>, Box<http::Response<Body>>> {
        let verified = VerifiedSigner::default();
        let mut request = Request::new(body);
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = head.uri.clone();
        *request.version_mut() = head.version;
        *request.headers_mut() = head.headers.clone();
        request.headers_mut().entry("x-amz-trailer").or_insert(NO_TRAILER);
        request.extensions_mut().insert(verified.clone());
        let answer = self.0.call(request).await;
        match (verified.0.get(), answer) {
            (Some(signer), _) => Ok(signer.clone()),
            (None, Ok(answer)) => Err(Box::new(answer)),
            (None, Err(error)) => {
                tracing::warn!(
                    ?error,
                    "checking a request's signature failed without an S3 error; the client gets InternalError"
                );
                let error = s3_error!(InternalError, "We encountered an internal error, please try again.");
                Err(Box::new(error.to_http_response().unwrap_or_default()))
            }
        }
    }
}

/// The verified signer, as `s3s` found it.
#[derive(Debug, Clone, Default)]
struct VerifiedSigner(Arc<OnceLock<Option<Credentials>>>);

/// Accepts any bucket name: in virtual-hosted style the path begins with the key.
struct AcceptAnyName;

impl NameValidation for AcceptAnyName {
    fn validate_bucket_name(&self, _name: &str) -> bool {
        true
    }
}

/// An S3 service without operations.
struct NoOperations;

impl S3 for NoOperations {}

/// Records the signer of every request that passes verification, unsigned ones included.
struct RecordSigner;

#[async_trait::async_trait]
impl S3Route for RecordSigner {
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
        if let Some(verified) = request.extensions.get::<VerifiedSigner>() {
            verified.0.set(request.credentials).ok();
        }
        Ok(S3Response::new(Body::empty()))
    }
}
