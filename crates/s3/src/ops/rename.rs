//! RenameObject (S3 API, directory buckets): `PUT /bucket/new?renameObject` with `x-amz-rename-source`.

use http::HeaderMap;
use s3s::{S3Result, s3_error};
use store::{ETag, Precondition};

use crate::addressing::Target;
use crate::bucket::{Bucket, key};
use crate::conditions;
use crate::error::{from_store, precondition_failed};
use crate::headers;

/// The parameters of a rename.
#[derive(Debug)]
pub(crate) struct RenameRequest {
    pub(crate) from: String,
    to: String,
    /// The etag that the source must have, if the request names one.
    source_etag: Option<ETag>,
    target_precondition: Precondition,
}

impl RenameRequest {
    /// Parses the headers of a request for a target.
    pub(crate) fn parse(target: &Target, headers: &HeaderMap) -> S3Result<Self> {
        let invalid = |what: &str| s3_error!(InvalidRequest, "RenameObject: {what}");
        let text = |name: &str| headers::text(headers, name);
        let (bucket, to) = (target.bucket().unwrap_or_default(), target.key().unwrap_or_default());
        let source = text("x-amz-rename-source").ok_or_else(|| invalid("x-amz-rename-source is missing"))?;
        let source = percent_encoding::percent_decode_str(source).decode_utf8();
        let source = source.map_err(|_| invalid("x-amz-rename-source is not UTF-8"))?;
        // The source is a key of the same bucket, with or without the bucket's name before it.
        let source = source.trim_start_matches('/');
        let from = source.strip_prefix(bucket).and_then(|rest| rest.strip_prefix('/')).unwrap_or(source);
        let etag = |name: &str| text(name).map(ETag::new);
        let target_precondition = conditions::header_precondition(headers)?;
        if text("x-amz-rename-source-if-none-match").is_some() {
            return Err(s3_error!(
                NotImplemented,
                "x-amz-rename-source-if-none-match is not implemented here"
            ));
        }
        let source_etag = etag("x-amz-rename-source-if-match");
        Ok(Self { from: from.to_owned(), to: to.to_owned(), source_etag, target_precondition })
    }
}

/// Renames an object within its bucket. Concurrent readers see the old name, the new one, or both.
pub(crate) async fn rename(bucket: &Bucket, request: RenameRequest) -> S3Result<()> {
    let (from, to) = (key(&request.from)?, key(&request.to)?);
    if from == to {
        return Err(s3_error!(InvalidRequest, "the source and the target of a rename are the same"));
    }
    let found = bucket.store.head(&from).await.map_err(from_store)?;
    if request.source_etag.is_some_and(|wanted| wanted != found.object.etag) {
        return Err(precondition_failed());
    }
    bucket.store.rename(&found.object, &to, request.target_precondition).await.map_err(from_store)
}
