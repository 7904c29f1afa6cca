//! CreateBucket and ListBuckets.

use s3s::dto::{Bucket, CreateBucketInput, ListBucketsInput, ListBucketsOutput};
use s3s::{S3Error, S3Result, s3_error};

use crate::authentication::argument;
use crate::authorizer;
use crate::endpoint::Shared;
use crate::error::{custom, from_store};
use crate::error_document::with_details;
use crate::headers;
use crate::ops::{acl, lock, settings};
use crate::owners;
use crate::wire::BucketTags;

/// The maximum number of buckets per page.
const PAGE_MAX: usize = 10_000;

/// Lists the buckets that a user may see.
pub(crate) async fn list(
    shared: &Shared,
    user: Option<String>,
    input: ListBucketsInput,
) -> S3Result<ListBucketsOutput> {
    let prefix = input.prefix.clone().unwrap_or_default();
    let limit = match input.max_buckets {
        None => usize::MAX,
        Some(max) => {
            usize::try_from(max).ok().filter(|max| (1..=PAGE_MAX).contains(max)).ok_or_else(|| {
                let message = "Argument max-buckets must be an integer between 1 and 10000.";
                argument(message, "max-buckets", &max.to_string())
            })?
        }
    };
    let names = shared.buckets.list().await.map_err(from_store)?;
    let after = input.continuation_token.as_deref().unwrap_or_default();
    let mut page: Vec<Bucket> = Vec::new();
    let mut continuation_token = None;
    for name in names.into_iter().filter(|name| name.starts_with(&prefix) && name.as_str() > after) {
        if !is_seen(shared, user.as_deref(), &name).await? {
            continue;
        }
        if page.len() == limit {
            continuation_token = page.last().and_then(|last| last.name.clone());
            break;
        }
        page.push(shown(shared, name).await?);
    }
    let owner = Some(owners::shown(user.unwrap_or_else(|| shared.users.first_admin())));
    Ok(ListBucketsOutput { buckets: Some(page), continuation_token, owner, prefix: input.prefix })
}

async fn is_seen(shared: &Shared, user: Option<&str>, bucket: &str) -> S3Result<bool> {
    let found = user.and_then(|user| shared.users.get(user));
    if found.is_some_and(|user| authorizer::sees_all_buckets(user.role)) {
        return Ok(true);
    }
    // The bucket was deleted in the meantime.
    let Ok(bucket) = shared.bucket(bucket).await else { return Ok(false) };
    Ok(user == Some(owners::of(&bucket, &shared.users).await?.as_str()))
}

async fn shown(shared: &Shared, name: String) -> S3Result<Bucket> {
    let made_at = shared.buckets.made_at(&name).await.map_err(from_store)?;
    Ok(Bucket {
        name: Some(name),
        creation_date: Some(headers::timestamp(made_at)),
        bucket_region: Some(shared.region.clone()),
    })
}

/// Creates a bucket, which then belongs to its creator.
pub(crate) async fn create(
    shared: &Shared,
    input: &CreateBucketInput,
    tags: Option<&BucketTags>,
    maker: Option<&str>,
) -> S3Result<()> {
    let name = &input.bucket;
    if let Ok(there) = shared.bucket(name).await {
        let owner = owners::of(&there, &shared.users).await?;
        return Err(already_there(maker == Some(owner.as_str())));
    }
    check(input, &shared.region)?;
    shared.buckets.create(name).await.map_err(|error| match error {
        store::StoreError::BucketState { .. } => s3_error!(BucketAlreadyOwnedByYou, "{error}"),
        store::StoreError::Invalid(_) => s3_error!(InvalidBucketName, "{error}"),
        error => from_store(error),
    })?;
    let made = set_up(shared, input, tags, maker).await;
    if made.is_err() {
        shared.buckets.delete(name).await.map_err(from_store)?;
    }
    made
}

fn check(input: &CreateBucketInput, own_region: &str) -> S3Result<()> {
    if let Some(wanted) = &input.object_ownership
        && !settings::OWNERSHIPS.contains(&wanted.as_str())
    {
        let message = format!("Invalid x-amz-object-ownership header: {}", wanted.as_str());
        return Err(argument(&message, "x-amz-object-ownership", ""));
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

fn already_there(is_own: bool) -> S3Error {
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
async fn set_up(
    shared: &Shared,
    input: &CreateBucketInput,
    tags: Option<&BucketTags>,
    maker: Option<&str>,
) -> S3Result<()> {
    let bucket = shared.bucket(&input.bucket).await?;
    if let Some(maker) = maker {
        owners::record(&bucket, maker).await?;
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
    let given = acl::given_acl!(input, None);
    let owner = owners::of(&bucket, &shared.users).await?;
    acl::put_first(&bucket, given, ownership.unwrap_or(settings::ENFORCED), &shared.users, &owner).await
}
