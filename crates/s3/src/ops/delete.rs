//! DeleteObject and DeleteObjects.

use futures_util::StreamExt as _;
use s3s::dto::ETagCondition;
use s3s::dto::{self, DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput};
use s3s::{S3Result, s3_error};
use store::{ETag, Precondition};

use crate::buckets::{Bucket, key};
use crate::error::{from_store, precondition_failed};

/// S3's most keys of one DeleteObjects.
const KEYS_MAX: usize = 1000;
/// Keys of one request that are deleted at the same time.
const DELETED_AT_ONCE: usize = 16;

pub(crate) async fn delete(bucket: &Bucket, input: &DeleteObjectInput) -> S3Result<DeleteObjectOutput> {
    if let Some(version) = input.version_id.as_deref().filter(|version| *version != "null") {
        return Err(no_such_version(version));
    }
    let wanted = Wanted {
        etag: match &input.if_match {
            Some(ETagCondition::ETag(etag)) => Some(etag.value()),
            Some(ETagCondition::Any) => Some("*"),
            None => None,
        },
        size: input.if_match_size,
    };
    delete_one(bucket, &input.key, wanted).await?;
    Ok(DeleteObjectOutput::default())
}

pub(crate) async fn delete_many(
    bucket: &Bucket,
    input: DeleteObjectsInput,
) -> S3Result<(DeleteObjectsOutput, Vec<String>)> {
    let objects = input.delete.objects;
    if objects.is_empty() || objects.len() > KEYS_MAX {
        return Err(s3_error!(
            MalformedXML,
            "The XML you provided was not well-formed or did not validate against our published schema"
        ));
    }
    let deletions = objects.into_iter().map(|object| async move {
        let outcome = match object.version_id.as_deref().filter(|version| *version != "null") {
            Some(version) => Err(no_such_version(version)),
            None => {
                let wanted = Wanted { etag: object.e_tag.as_ref().map(dto::ETag::value), size: object.size };
                delete_one(bucket, &object.key, wanted).await
            }
        };
        (object.key, object.version_id, outcome)
    });
    let outcomes: Vec<_> = futures_util::stream::iter(deletions).buffered(DELETED_AT_ONCE).collect().await;
    let (mut deleted, mut errors, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    for (key, version_id, outcome) in outcomes {
        match outcome {
            Ok(()) => {
                keys.push(key.clone());
                deleted.push(dto::DeletedObject { key: Some(key), version_id, ..Default::default() });
            }
            Err(error) => errors.push(dto::Error {
                code: Some(error.code().as_str().to_owned()),
                message: error.message().map(str::to_owned),
                key: Some(key),
                version_id,
            }),
        }
    }
    let is_quiet = input.delete.quiet.unwrap_or(false);
    let output = DeleteObjectsOutput {
        deleted: (!is_quiet).then_some(deleted),
        errors: (!errors.is_empty()).then_some(errors),
        ..Default::default()
    };
    Ok((output, keys))
}

/// What the object must be to be deleted.
struct Wanted<'a> {
    etag: Option<&'a str>,
    size: Option<i64>,
}

async fn delete_one(bucket: &Bucket, name: &str, wanted: Wanted<'_>) -> S3Result<()> {
    let key = key(name)?;
    let precondition = match (wanted.etag, wanted.size) {
        (None, None) => Precondition::None,
        (etag, size) => {
            // The size is of bytes that have the tag which is the condition of the call.
            let Some(found) = bucket.store.find(&key).await.map_err(from_store)? else {
                return if etag.is_some() { Err(precondition_failed()) } else { Ok(()) };
            };
            let is_size = size.is_none_or(|size| u64::try_from(size) == Ok(found.size_bytes));
            let is_etag = etag.is_none_or(|etag| etag == "*" || ETag::new(etag) == found.object.etag);
            if !is_size || !is_etag {
                return Err(precondition_failed());
            }
            Precondition::Matches(found.object.etag)
        }
    };
    bucket.store.delete(&key, precondition).await.map_err(from_store)
}

fn no_such_version(version: &str) -> s3s::S3Error {
    s3_error!(NoSuchVersion, "The specified version '{version}' does not exist.")
}
