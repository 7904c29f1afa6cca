//! Authorization before the body is read.
//!
//! `s3s` calls the authorizer once it knows the operation, but documents are read before that. So the request's head
//! alone is passed to an `s3s` service that implements no operation; its access check authorizes the request and then
//! always stops it.

use http::Request;
use http::header::AUTHORIZATION;
use http::request::Parts;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::Credentials;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, S3, S3Result, s3_error};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::authorizer::Authorizer;
use crate::error::internal;
use crate::sessions::Sessions;
use crate::wire::{Signer, without_signature};

/// Authorizes requests by their heads.
#[derive(Debug, Clone)]
pub(crate) struct Preauthorizer(S3Service);

impl Preauthorizer {
    pub(crate) fn new(authorizer: Authorizer, sessions: Sessions) -> Self {
        let mut builder = S3ServiceBuilder::new(NoOperations);
        builder.set_auth(sessions);
        builder.set_access(AuthorizeThenStop(authorizer));
        Self(builder.build())
    }

    /// Authorizes a request whose signature was verified. The error is the response to send.
    pub(crate) async fn check(
        &self,
        head: &Parts,
        signer: Option<&Credentials>,
    ) -> Result<(), Box<http::Response<Body>>> {
        let authorized = Authorized::default();
        let mut request = Request::new(Body::empty());
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = without_signature(&head.uri);
        *request.version_mut() = head.version;
        *request.headers_mut() = head.headers.clone();
        request.headers_mut().remove(AUTHORIZATION);
        *request.extensions_mut() = head.extensions.clone();
        request.extensions_mut().insert(authorized.clone());
        request.extensions_mut().extend(Signer::extension(signer));
        let answer = self.0.call(request).await;
        match answer {
            _ if authorized.0.load(Ordering::Relaxed) => Ok(()),
            Ok(answer) => Err(Box::new(answer)),
            Err(error) => {
                tracing::warn!(?error, "cannot authorize a request");
                Err(Box::new(internal().to_http_response().unwrap_or_default()))
            }
        }
    }
}

/// Whether the authorizer allowed a request.
#[derive(Debug, Clone, Default)]
struct Authorized(Arc<AtomicBool>);

/// An S3 service without operations.
struct NoOperations;

impl S3 for NoOperations {}

/// Runs the authorizer, records whether it allowed the request, and then stops every request.
struct AuthorizeThenStop(Authorizer);

#[async_trait::async_trait]
impl S3Access for AuthorizeThenStop {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        S3Access::check(&self.0, context).await?;
        if let Some(authorized) = context.extensions_mut().get::<Authorized>() {
            authorized.0.store(true, Ordering::Relaxed);
        }
        Err(s3_error!(AccessDenied, "Access Denied."))
    }
}
