//! The last stage: a request that may do what it asks for.

use http::Response;
use http_body::Body as _;
use s3s::access::{S3Access, S3AccessContext};
use s3s::dto::{CopyObjectInput, CopySource, UploadPartCopyInput};
use s3s::service::S3Service;
use s3s::{Body, S3Request, S3Result};
use std::sync::Arc;

use super::{Admitted, Authenticated};
use crate::authorizer::Authorizer;
use crate::copy_source;
use crate::encryption;
use crate::error::internal;
use crate::operations::{BodyKind, Handler};
use crate::scope::RequestScope;
use crate::wire;

/// A request whose operation was authorized. Its body is still unread, except for a form.
pub(crate) struct Authorized(Authenticated);

impl Admitted {
    /// Authorizes what a request does, by the permissions of its operation.
    pub(crate) async fn authorize(self, authorizer: &Authorizer) -> S3Result<Authorized> {
        let Self(mut request) = self;
        let headers = &request.head.headers;
        if request.form.is_some() {
            encryption::check(headers, authorizer.0.encrypted)?;
        }
        let scope = &mut request.scope;
        scope.target.check_names()?;
        request.facts.note_operation(scope.operation.served_name());
        authorizer.authorize_target(scope, headers).await?;
        if scope.operation.needs_bucket_first() {
            authorizer.0.open_bucket(scope.target.bucket().unwrap_or_default()).await?;
        }
        if scope.operation.is_copy() {
            scope.copy_source = Some(copy_source::parse(headers)?);
        }
        authorizer.authorize_sources(scope, headers).await?;
        Ok(Authorized(request))
    }
}

impl Authorized {
    /// Runs the operation and returns its response. A document is read whole before, within the memory acquired for it.
    pub(crate) async fn run(self, service: &S3Service) -> S3Result<Response<Body>> {
        let Authenticated { head, body, scope, framing, form, .. } = self.0;
        let _document = match scope.operation.body {
            BodyKind::Document { bytes_max } => {
                let announced = body.size_hint().exact();
                scope.caller.admitted.acquire_document(announced, bytes_max as u64).await?
            }
            _ => None,
        };
        let mut request = wire::to_plain(head, body, scope.operation, framing).await?;
        request.extensions_mut().insert(Arc::new(scope));
        let response = service.call(request).await.map_err(|error| {
            tracing::warn!(?error, "a request failed without an S3 error; the client gets InternalError");
            internal()
        })?;
        Ok(match form {
            Some(form) => form.into_response(response),
            None => response,
        })
    }
}

/// Confirms, from within `s3s`, that it runs what was authorized: the operation, the target and the source.
#[derive(Debug)]
pub(crate) struct Confirmation;

#[async_trait::async_trait]
impl S3Access for Confirmation {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let scope = RequestScope::of(context.extensions_mut())?;
        let (name, authorized) = (context.s3_op().name(), scope.operation.handler);
        assert!(
            matches!(authorized, Handler::Service(authorized) if authorized == name),
            "s3s would run {name}, and {authorized:?} was authorized"
        );
        assert!(scope.target.is_same(context.s3_path()), "s3s would use another target than was authorized");
        Ok(())
    }

    async fn copy_object(&self, request: &mut S3Request<CopyObjectInput>) -> S3Result<()> {
        confirm_source(&request.extensions, &request.input.copy_source)
    }

    async fn upload_part_copy(&self, request: &mut S3Request<UploadPartCopyInput>) -> S3Result<()> {
        confirm_source(&request.extensions, &request.input.copy_source)
    }
}

fn confirm_source(extensions: &http::Extensions, source: &CopySource) -> S3Result<()> {
    let scope = RequestScope::of(extensions)?;
    assert_eq!(scope.copy_source.as_ref(), Some(source), "s3s would copy another source than was authorized");
    Ok(())
}
