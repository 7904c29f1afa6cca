//! Operations that `s3s` does not implement: RenameObject and AssumeRole.

use http::HeaderValue;
use http::header::CONTENT_TYPE;
use s3s::route::S3Route;
use s3s::{Body, S3Request, S3Response, S3Result, s3_error};
use std::sync::Arc;

use crate::access_log::RequestFacts;
use crate::authorizer::Authorizer;
use crate::body::body_error;
use crate::endpoint::{EndpointContext, STS_BYTES_MAX};
use crate::notify::Action;
use crate::operations::has_parameter;
use crate::ops;
use crate::policy_condition::RequestContext;
use crate::wire::Signer;

/// Routes requests for RenameObject and AssumeRole.
#[derive(Debug)]
pub(crate) struct Routes {
    pub(crate) context: Arc<EndpointContext>,
    pub(crate) authorizer: Authorizer,
}

#[async_trait::async_trait]
impl S3Route for Routes {
    fn is_match(
        &self,
        method: &http::Method,
        uri: &http::Uri,
        _headers: &http::HeaderMap,
        _extensions: &mut http::Extensions,
    ) -> bool {
        let is_rename = *method == http::Method::PUT && has_parameter(uri, "renameObject");
        is_rename || is_sts(method, uri)
    }

    async fn check_access(&self, request: &mut S3Request<Body>) -> S3Result<()> {
        let signer = Signer::of(&request.extensions);
        signer.map(drop).ok_or_else(|| s3_error!(AccessDenied, "Access Denied."))
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let is_sts = is_sts(&request.method, &request.uri);
        RequestFacts::note_operation(&request.extensions, if is_sts { "AssumeRole" } else { "RenameObject" });
        if is_sts {
            return self.assume_role(request).await;
        }
        let request_context = RequestContext::of(&request.uri, &request.extensions);
        let rename = ops::rename::RenameRequest::parse(request.uri.path(), &request.headers)?;
        let user = Signer::of(&request.extensions);
        for (action, key) in
            [("s3:GetObject", &rename.from), ("s3:DeleteObject", &rename.from), ("s3:PutObject", &rename.to)]
        {
            self.authorizer
                .authorize(user, action, Some(&rename.bucket), Some(key), &request_context)
                .await?;
        }
        let bucket = self.context.open_observed(&request, &rename.bucket, Action::Rename).await?;
        ops::rename::rename(&bucket, rename).await?;
        Ok(S3Response::new(Body::empty()))
    }
}

impl Routes {
    async fn assume_role(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let signer = Signer::of(&request.extensions);
        // Session keys are no users: temporary credentials cannot create further ones.
        let user = signer.and_then(|name| self.context.users.get(name));
        let user = user.ok_or_else(|| s3_error!(AccessDenied, "Access Denied."))?;
        let mut body = request.input;
        let form = body.store_all_limited(STS_BYTES_MAX).await.map_err(body_error)?;
        let id = format!("{:016X}", self.context.entropy.next_u64());
        let answer = ops::sts::assume_role(&form, &user, &self.context.sessions, &id)?;
        let mut response = S3Response::new(Body::from(answer));
        response.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/xml"));
        Ok(response)
    }
}

/// Whether a request is addressed to STS.
pub(crate) fn is_sts(method: &http::Method, uri: &http::Uri) -> bool {
    *method == http::Method::POST && uri.path() == "/"
}
