//! DeleteObject and DeleteObjects.

use futures_util::StreamExt as _;
use s3s::dto::ETagCondition;
use s3s::dto::{self, DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput};
use s3s::{S3Result, s3_error};
use std::collections::BTreeSet;
use store::{Deleted, ETag, NULL_VERSION, ObjectKey, ObjectMeta, Precondition, Removal};

use crate::bucket::{Bucket, key};
use crate::error::{from_store, malformed_xml, precondition_failed};
use crate::headers;
use crate::version_lookup::{self, from_versions};

/// S3's maximum number of keys per DeleteObjects.
const KEYS_MAX: usize = 1000;
/// The maximum number of deletions in flight per request.
const DELETIONS_IN_FLIGHT: usize = 16;

pub(crate) async fn delete(bucket: &Bucket, input: &DeleteObjectInput) -> S3Result<DeleteObjectOutput> {
    let conditions = DeleteConditions {
        etag: match &input.if_match {
            Some(ETagCondition::ETag(etag)) => Some(etag.value()),
            Some(ETagCondition::Any) => Some("*"),
            None => None,
        },
        size: input.if_match_size,
        modified: input.if_match_last_modified_time.as_ref(),
    };
    let version = input.version_id.as_deref().filter(|version| !version.is_empty());
    let bypass = input.bypass_governance_retention.unwrap_or(false);
    let deleted = delete_one(bucket, &input.key, version, conditions, bypass).await?;
    Ok(DeleteObjectOutput {
        delete_marker: deleted.is_marker.then_some(true),
        version_id: deleted.version.map(String::from),
        ..Default::default()
    })
}

pub(crate) async fn delete_many(
    bucket: &Bucket,
    input: DeleteObjectsInput,
    denied: &BTreeSet<usize>,
) -> S3Result<DeleteObjectsOutput> {
    let objects = input.delete.objects;
    if objects.is_empty() || objects.len() > KEYS_MAX {
        return Err(malformed_xml());
    }
    let bypass = input.bypass_governance_retention.unwrap_or(false);
    let deletions = objects.into_iter().enumerate().map(|(at, object)| async move {
        let conditions = DeleteConditions {
            etag: object.e_tag.as_ref().map(dto::ETag::value),
            size: object.size,
            modified: object.last_modified_time.as_ref(),
        };
        let version = object.version_id.as_deref().filter(|version| !version.is_empty());
        let outcome = match denied.contains(&at) {
            true => Err(s3_error!(AccessDenied, "Access Denied.")),
            false => delete_one(bucket, &object.key, version, conditions, bypass).await,
        };
        (object.key, object.version_id, outcome)
    });
    let outcomes: Vec<_> =
        futures_util::stream::iter(deletions).buffered(DELETIONS_IN_FLIGHT).collect().await;
    let (mut deleted, mut errors) = (Vec::new(), Vec::new());
    for (key, version_id, outcome) in outcomes {
        match outcome {
            Ok(done) => {
                let made = done.version.filter(|_| done.is_marker).map(String::from);
                deleted.push(dto::DeletedObject {
                    key: Some(key),
                    version_id,
                    delete_marker: done.is_marker.then_some(true),
                    delete_marker_version_id: made,
                });
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
    Ok(DeleteObjectsOutput {
        deleted: (!is_quiet).then_some(deleted),
        errors: (!errors.is_empty()).then_some(errors),
        ..Default::default()
    })
}

/// Conditions on the object to be deleted.
struct DeleteConditions<'a> {
    etag: Option<&'a str>,
    size: Option<i64>,
    modified: Option<&'a dto::Timestamp>,
}

impl DeleteConditions<'_> {
    fn is_empty(&self) -> bool {
        self.etag.is_none() && self.size.is_none() && self.modified.is_none()
    }

    /// Returns whether an object satisfies the conditions.
    fn matches(&self, found: &ObjectMeta) -> bool {
        let seconds = found.object.last_modified.map(store::Timestamp::secs);
        self.size.is_none_or(|size| u64::try_from(size) == Ok(found.size_bytes))
            && self.etag.is_none_or(|etag| etag == "*" || ETag::new(etag) == found.object.etag)
            && self.modified.is_none_or(|time| seconds == Some(headers::secs(time)))
    }
}

/// Deletes an object, or the version that is named, if the conditions hold.
async fn delete_one(
    bucket: &Bucket,
    name: &str,
    version: Option<&str>,
    conditions: DeleteConditions<'_>,
    bypass_governance: bool,
) -> S3Result<Deleted> {
    let key = key(name)?;
    let precondition = match conditions.is_empty() {
        true => Precondition::None,
        // Size and time are checked here. The store then checks that the object still has the etag they were checked
        // for.
        false => match find(bucket, &key, version).await? {
            Some(found) if conditions.matches(&found) => Precondition::Matches(found.object.etag),
            None if conditions.etag.is_none() => return Ok(Deleted::default()),
            _ => return Err(precondition_failed()),
        },
    };
    match (bucket.store.versions(), version) {
        (Some(versions), Some(id)) => {
            let removal = Removal { precondition, bypass_governance };
            versions.remove(&key, id, removal).await.map_err(|error| from_versions(error, id))
        }
        (Some(versions), None) => versions.mark(&key, precondition).await.map_err(from_store),
        (None, Some(id)) if id != NULL_VERSION => Err(version_lookup::unknown_version_error(&key, id)),
        (None, _) => {
            bucket.store.delete(&key, precondition).await.map_err(from_store)?;
            Ok(Deleted::default())
        }
    }
}

async fn find(bucket: &Bucket, key: &ObjectKey, version: Option<&str>) -> S3Result<Option<ObjectMeta>> {
    match version {
        None => bucket.store.find(key).await.map_err(from_store),
        Some(id) => Ok(version_lookup::find(bucket, key, id).await?.stored),
    }
}
