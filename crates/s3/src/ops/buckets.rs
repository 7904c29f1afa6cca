//! CreateBucket, DeleteBucket and ListBuckets.

use s3s::dto::{Bucket, CreateBucketInput, ListBucketsInput, ListBucketsOutput};
use s3s::{S3Error, S3Result, s3_error};

use crate::context::EndpointContext;
use crate::error::{custom, from_store, invalid_argument};
use crate::error_document::with_details;
use crate::headers;
use crate::iam_actions::sees_all_buckets;
use crate::ops::{acl, lock, settings};
use crate::owners;
use crate::version_lookup;
use crate::wire::BucketTags;

/// The maximum number of buckets per page.
const PAGE_MAX: usize = 10_000;

/// Lists the buckets that a user may see.
pub(crate) async fn list(
    context: &EndpointContext,
    user: Option<String>,
    input: ListBucketsInput,
) -> S3Result<ListBucketsOutput> {
    let prefix = input.prefix.clone().unwrap_or_default();
    let limit = match input.max_buckets {
        None => usize::MAX,
        Some(max) => {
            usize::try_from(max).ok().filter(|max| (1..=PAGE_MAX).contains(max)).ok_or_else(|| {
                let message = "Argument max-buckets must be an integer between 1 and 10000.";
                invalid_argument(message, "max-buckets", &max.to_string())
            })?
        }
    };
    let names = context.buckets.list().await.map_err(from_store)?;
    let after = input.continuation_token.as_deref().unwrap_or_default();
    let mut page: Vec<Bucket> = Vec::new();
    let mut continuation_token = None;
    for name in names.into_iter().filter(|name| name.starts_with(&prefix) && name.as_str() > after) {
        if !is_visible(context, user.as_deref(), &name).await? {
            continue;
        }
        if page.len() == limit {
            continuation_token = page.last().and_then(|last| last.name.clone());
            break;
        }
        page.push(to_dto(context, name).await?);
    }
    let owner = Some(owners::to_dto(user.unwrap_or_else(|| context.users.default_owner())));
    Ok(ListBucketsOutput { buckets: Some(page), continuation_token, owner, prefix: input.prefix })
}

/// Returns whether a user sees a bucket in the list of buckets.
async fn is_visible(context: &EndpointContext, user: Option<&str>, bucket: &str) -> S3Result<bool> {
    let found = user.and_then(|user| context.users.get(user));
    if found.is_some_and(|user| sees_all_buckets(user.role)) {
        return Ok(true);
    }
    // The bucket was deleted in the meantime.
    let Ok(bucket) = context.open_bucket(bucket).await else { return Ok(false) };
    Ok(user == Some(owners::find(&bucket, &context.users).await?.as_str()))
}

async fn to_dto(context: &EndpointContext, name: String) -> S3Result<Bucket> {
    let made_at = context.buckets.made_at(&name).await.map_err(from_store)?;
    Ok(Bucket {
        name: Some(name),
        creation_date: Some(headers::timestamp(made_at)),
        bucket_region: Some(context.region.clone()),
    })
}

/// Creates a bucket, which then belongs to its creator, unless the list of users assigns it to another user.
pub(crate) async fn create(
    context: &EndpointContext,
    input: &CreateBucketInput,
    tags: Option<&BucketTags>,
    creator: Option<&str>,
) -> S3Result<()> {
    let name = &input.bucket;
    if let Ok(there) = context.open_bucket(name).await {
        let owner = owners::find(&there, &context.users).await?;
        return Err(exists_error(creator == Some(owner.as_str())));
    }
    check(input, &context.region)?;
    context.buckets.create(name).await.map_err(|error| match error {
        store::StoreError::BucketState { .. } => s3_error!(BucketAlreadyOwnedByYou, "{error}"),
        store::StoreError::Invalid(_) => s3_error!(InvalidBucketName, "{error}"),
        error => from_store(error),
    })?;
    let applied = apply_settings(context, input, tags, creator).await;
    if applied.is_err() {
        context.buckets.delete(name).await.map_err(from_store)?;
    }
    applied
}

/// Deletes an empty bucket.
pub(crate) async fn delete(context: &EndpointContext, bucket: &crate::bucket::Bucket) -> S3Result<()> {
    let versioning = version_lookup::versioning_state(bucket).await?;
    let deleted = context.buckets.delete(&bucket.name).await;
    deleted.map_err(|error| match error {
        store::StoreError::BucketState { .. } => {
            let message = match versioning {
                store::Versioning::Never => "The bucket you tried to delete is not empty.",
                _ => {
                    "The bucket you tried to delete is not empty. You must delete all versions in the bucket."
                }
            };
            s3_error!(BucketNotEmpty, "{message}")
        }
        error => from_store(error),
    })
}

/// Checks the ownership setting and the region of a new bucket.
fn check(input: &CreateBucketInput, own_region: &str) -> S3Result<()> {
    if let Some(wanted) = &input.object_ownership
        && !settings::OWNERSHIPS.contains(&wanted.as_str())
    {
        let message = format!("Invalid x-amz-object-ownership header: {}", wanted.as_str());
        return Err(invalid_argument(&message, "x-amz-object-ownership", ""));
    }
    let region = input.create_bucket_configuration.as_ref();
    if let Some(region) = region.and_then(|given| given.location_constraint.as_ref())
        && (region.as_str() == "us-east-1" || region.as_str() != own_region)
    {
        let message = "The specified location-constraint is not valid";
        let error = custom("InvalidLocationConstraint", http::StatusCode::BAD_REQUEST, message);
        return Err(with_details(error, &[("LocationConstraint", region.as_str())]));
    }
    Ok(())
}

fn exists_error(is_own: bool) -> S3Error {
    match is_own {
        true => s3_error!(
            BucketAlreadyOwnedByYou,
            "Your previous request to create the named bucket succeeded and you already own it."
        ),
        false => s3_error!(
            BucketAlreadyExists,
            "The requested bucket name is not available. The bucket namespace is shared by all users of the system. Please select a different name and try again."
        ),
    }
}

/// Applies the request's settings to a new bucket.
async fn apply_settings(
    context: &EndpointContext,
    input: &CreateBucketInput,
    tags: Option<&BucketTags>,
    creator: Option<&str>,
) -> S3Result<()> {
    let bucket = context.open_bucket(&input.bucket).await?;
    if let Some(creator) = creator {
        owners::record(&bucket, creator).await?;
    }
    if let Some(BucketTags(tags)) = tags.filter(|tags| !tags.0.is_empty()) {
        settings::put_tagging(&bucket, tags).await?;
    }
    if input.object_lock_enabled_for_bucket.unwrap_or(false) {
        lock::enable(&bucket).await?;
    }
    let ownership = input.object_ownership.as_ref().map(|ownership| ownership.as_str());
    if let Some(settings) = bucket.store.settings() {
        let text = serde_json::to_vec(ownership.unwrap_or(settings::ENFORCED)).unwrap_or_default();
        settings.set(settings::OWNERSHIP, Some(text.into())).await.map_err(from_store)?;
    }
    let given = acl::acl_request!(input, None);
    let owner = owners::find(&bucket, &context.users).await?;
    acl::put_initial(&bucket, given, ownership.unwrap_or(settings::ENFORCED), &context.users, &owner).await
}
