//! Operations that the protocol layer does not know.

use s3s::route::S3Route;
use s3s::{Body, S3Request, S3Response, S3Result};
use std::sync::Arc;

use crate::access::Gate;
use crate::endpoint::Shared;
use crate::ops;
use crate::policy_condition::Circumstances;

/// RenameObject.
#[derive(Debug)]
pub(crate) struct Renames {
    pub(crate) shared: Arc<Shared>,
    pub(crate) gate: Gate,
}

#[async_trait::async_trait]
impl S3Route for Renames {
    fn is_match(
        &self,
        method: &http::Method,
        uri: &http::Uri,
        _headers: &http::HeaderMap,
        _extensions: &mut http::Extensions,
    ) -> bool {
        let words = uri.query().unwrap_or_default().split('&');
        *method == http::Method::PUT
            && words.map(|word| word.split('=').next()).any(|word| word == Some("renameObject"))
    }

    async fn call(&self, request: S3Request<Body>) -> S3Result<S3Response<Body>> {
        let around = Circumstances::of(&request.uri, &request.extensions);
        let rename = ops::rename::Asked::read(request.uri.path(), &request.headers)?;
        let user = request.credentials.as_ref().map(|credentials| credentials.access_key.as_str());
        for (action, key) in
            [("s3:GetObject", &rename.from), ("s3:DeleteObject", &rename.from), ("s3:PutObject", &rename.to)]
        {
            self.gate.check(user, action, Some(&rename.bucket), Some(key), &around).await?;
        }
        let bucket = self.shared.bucket(&rename.bucket).await?;
        ops::rename::rename(&bucket, rename).await?;
        Ok(S3Response::new(Body::empty()))
    }
}
