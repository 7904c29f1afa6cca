//! Object tags.

use s3s::S3Result;
use s3s::dto::{DeleteObjectTaggingInput, DeleteObjectTaggingOutput, GetObjectTaggingOutput};
use s3s::dto::{PutObjectTaggingInput, PutObjectTaggingOutput};
use store::{ObjectRef, Tags};

use crate::bucket::{Bucket, key};
use crate::error::from_store;
use crate::headers;
use crate::version_lookup;

/// S3's maximum number of tags per object.
const TAGS_MAX: usize = 10;

pub(crate) async fn get(bucket: &Bucket, name: &str, id: Option<&str>) -> S3Result<GetObjectTaggingOutput> {
    let object = version_lookup::find_stored(bucket, &key(name)?, id).await?.meta.object;
    let tags = read(bucket, &object).await?;
    let version_id = object.version.map(String::from);
    Ok(GetObjectTaggingOutput { tag_set: headers::tag_set(tags), version_id })
}

/// Returns the tags of an object, which may be a noncurrent version.
pub(crate) async fn read(bucket: &Bucket, object: &ObjectRef) -> S3Result<Tags> {
    read_from_store(bucket, object).await.map_err(from_store)
}

/// Returns the tags of an object as [`read`] does, but fails with the store's errors.
pub(crate) async fn read_from_store(bucket: &Bucket, object: &ObjectRef) -> store::Result<Tags> {
    match (bucket.store.versions(), &object.version) {
        (Some(versions), Some(id)) => versions.tags(&object.key, id).await,
        _ => bucket.store.tags(&object.key).await,
    }
}

pub(crate) async fn put(bucket: &Bucket, input: &PutObjectTaggingInput) -> S3Result<PutObjectTaggingOutput> {
    let tags = headers::tags_of_set(&input.tagging.tag_set, TAGS_MAX)?;
    let version_id = replace(bucket, &input.key, input.version_id.as_deref(), tags).await?;
    Ok(PutObjectTaggingOutput { version_id })
}

pub(crate) async fn delete(
    bucket: &Bucket,
    input: &DeleteObjectTaggingInput,
) -> S3Result<DeleteObjectTaggingOutput> {
    let version_id = replace(bucket, &input.key, input.version_id.as_deref(), Tags::new()).await?;
    Ok(DeleteObjectTaggingOutput { version_id })
}

/// Replaces an object's tags. Returns its version id for the response.
async fn replace(bucket: &Bucket, name: &str, id: Option<&str>, tags: Tags) -> S3Result<Option<String>> {
    let object = version_lookup::find_stored(bucket, &key(name)?, id).await?.meta.object;
    let replaced = match (bucket.store.versions(), &object.version) {
        (Some(versions), Some(id)) => versions.set_tags(&object.key, id, tags).await,
        _ => bucket.store.set_tags(&object.key, tags).await,
    };
    replaced.map_err(from_store)?;
    Ok(object.version.map(String::from))
}
