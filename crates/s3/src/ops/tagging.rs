//! Tags of objects.

use s3s::S3Result;
use s3s::dto::{GetObjectTaggingOutput, Tag};
use store::Tags;

use crate::buckets::{Bucket, key};
use crate::error::from_store;
use crate::headers;

/// S3's most tags of an object.
const TAGS_MAX: usize = 10;

pub(crate) async fn get(bucket: &Bucket, name: &str) -> S3Result<GetObjectTaggingOutput> {
    let tags = bucket.store.tags(&key(name)?).await.map_err(from_store)?;
    Ok(GetObjectTaggingOutput { tag_set: headers::tag_set(tags), ..Default::default() })
}

pub(crate) async fn put(bucket: &Bucket, name: &str, set: &[Tag]) -> S3Result<()> {
    let tags = headers::tags_of_set(set, TAGS_MAX)?;
    bucket.store.set_tags(&key(name)?, tags).await.map_err(from_store)
}

pub(crate) async fn delete(bucket: &Bucket, name: &str) -> S3Result<()> {
    bucket.store.set_tags(&key(name)?, Tags::new()).await.map_err(from_store)
}
