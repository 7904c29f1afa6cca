//! Operations that `s3s` does not implement: RenameObject and AssumeRole.

use http::HeaderValue;
use http::header::CONTENT_TYPE;
use s3s::route::S3Route;
use s3s::{Body, S3Request, S3Response, S3Result, s3_error};
use std::sync::Arc;

use crate::context::EndpointContext;
use crate::error::{body_error, internal};
use crate::operations::{BodyKind, Handler};
use crate::ops;
use crate::scope::RequestScope;

/// Routes requests for RenameObject and AssumeRole.
#[derive(Debug)]
pub(crate) struct Routes(pub(crate) Arc<EndpointContext>);

#[async_trait::async_trait]
impl S3Route for Routes {
    fn is_match(
        &self,
        _method: &http::Method,
        _uri: &http::Uri,
        _headers: &http::HeaderMap,
        extensions: &mut http::Extensions,
    ) -> bool {
        RequestScope::of(extensions).is_ok_and(|scope| scope.operation.handler == Handler::Route)
    }

    async fn check_access(&self, request: &mut S3Request<Body>) -> S3Result<()> {
        let scope = RequestScope::of(&request.extensions)?;
        assert!(scope.caller.signer.is_some(), "{} needs a signature", scope.operation.name);
        Ok(())
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let scope = RequestScope::of(&request.extensions)?;
        match (scope.operation.name, scope.operation.body) {
            ("RenameObject", _) => self.rename(&scope, &request).await,
            ("AssumeRole", BodyKind::StsForm { bytes_max }) => {
                self.assume_role(&scope, request.input, bytes_max).await
            }
            _ => Err(internal()),
        }
    }
}

impl Routes {
    async fn rename(&self, scope: &RequestScope, request: &S3Request<Body>) -> S3Result<S3Response<Body>> {
        let rename = ops::rename::RenameRequest::parse(&scope.target, &request.headers)?;
        ops::rename::rename(&self.0.open_target(scope).await?, rename).await?;
        Ok(S3Response::new(Body::empty()))
    }

    async fn assume_role(
        &self,
        scope: &RequestScope,
        mut body: Body,
        bytes_max: usize,
    ) -> S3Result<S3Response<Body>> {
        // Session keys are no users: temporary credentials cannot create further ones.
        let user = scope.caller.signer.as_deref().and_then(|name| self.0.users.get(name));
        let user = user.ok_or_else(|| s3_error!(AccessDenied, "Access Denied."))?;
        let form = body.store_all_limited(bytes_max).await.map_err(body_error)?;
        let answer = ops::sts::assume_role(&form, &user, &self.0.sessions, &self.0.request_id())?;
        let mut response = S3Response::new(Body::from(answer));
        response.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/xml"));
        Ok(response)
    }
}
