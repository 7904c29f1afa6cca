//! Bucket settings: kept as small JSON documents, and returned as they were set.

use bytes::Bytes;
use s3s::dto;
use s3s::{S3Result, s3_error};

use crate::bucket::Bucket;
use crate::error::malformed_xml;
use crate::headers;
use crate::policy::Policy;
use crate::users::Users;

/// Names of settings.
pub(crate) const POLICY: &str = "policy";
pub(crate) const CORS: &str = "cors";
pub(crate) const TAGGING: &str = "tagging";
pub(crate) const LIFECYCLE: &str = "lifecycle";
const NOTIFICATION: &str = "notification";
pub(crate) const OWNERSHIP: &str = "ownership";

/// The object ownership that disables ACLs: everything in the bucket belongs to its owner.
pub(crate) const ENFORCED: &str = "BucketOwnerEnforced";
/// S3's values of object ownership.
pub(crate) const OWNERSHIPS: [&str; 3] = ["BucketOwnerPreferred", "ObjectWriter", ENFORCED];

/// S3's maximum number of tags per bucket.
const BUCKET_TAGS_MAX: usize = 50;
/// S3's maximum length of a policy, in bytes.
const POLICY_BYTES_MAX: usize = 20 << 10;
/// S3's maximum number of rules in a CORS configuration.
const CORS_RULES_MAX: usize = 100;

pub(crate) async fn get_tagging(bucket: &Bucket) -> S3Result<dto::GetBucketTaggingOutput> {
    let tags: Option<store::Tags> = bucket.setting(TAGGING).await?;
    let tags = tags.ok_or_else(|| s3_error!(NoSuchTagSet, "The TagSet does not exist"))?;
    Ok(dto::GetBucketTaggingOutput { tag_set: headers::tag_set(tags) })
}

pub(crate) async fn put_tagging(bucket: &Bucket, set: &[dto::Tag]) -> S3Result<()> {
    bucket.set(TAGGING, Some(&headers::tags_of_set(set, BUCKET_TAGS_MAX)?)).await
}

pub(crate) async fn get_policy(bucket: &Bucket) -> S3Result<String> {
    let policy = bucket.text(POLICY).await?;
    let policy = policy.ok_or_else(|| s3_error!(NoSuchBucketPolicy, "The bucket policy does not exist"))?;
    Ok(String::from_utf8_lossy(&policy).into_owned())
}

/// Returns whether the bucket's policy allows something to everybody without a condition.
pub(crate) async fn is_policy_public(bucket: &Bucket) -> S3Result<bool> {
    Ok(Policy::parse(&get_policy(bucket).await?, &bucket.name)?.is_public())
}

pub(crate) async fn put_policy(bucket: &Bucket, policy: String, users: &Users) -> S3Result<()> {
    if policy.len() > POLICY_BYTES_MAX {
        return Err(s3_error!(
            MalformedPolicy,
            "Normalized policy document exceeds the maximum allowed size of 20480 bytes."
        ));
    }
    Policy::parse(&policy, &bucket.name)?.check_principals(users)?;
    bucket.set_text(POLICY, Some(Bytes::from(policy))).await
}

pub(crate) async fn get_cors(bucket: &Bucket) -> S3Result<dto::GetBucketCorsOutput> {
    let cors: Option<dto::CORSConfiguration> = bucket.setting(CORS).await?;
    let cors =
        cors.ok_or_else(|| s3_error!(NoSuchCORSConfiguration, "The CORS configuration does not exist"))?;
    Ok(dto::GetBucketCorsOutput { cors_rules: Some(cors.cors_rules) })
}

pub(crate) async fn put_cors(bucket: &Bucket, cors: &dto::CORSConfiguration) -> S3Result<()> {
    if cors.cors_rules.is_empty() || cors.cors_rules.len() > CORS_RULES_MAX {
        return Err(malformed_xml());
    }
    crate::cors::check(cors)?;
    bucket.set(CORS, Some(cors)).await
}

pub(crate) async fn get_lifecycle(bucket: &Bucket) -> S3Result<Vec<dto::LifecycleRule>> {
    let rules: Option<Vec<dto::LifecycleRule>> = bucket.setting(LIFECYCLE).await?;
    rules.ok_or_else(|| s3_error!(NoSuchLifecycleConfiguration, "The lifecycle configuration does not exist"))
}

pub(crate) async fn put_lifecycle(bucket: &Bucket, rules: &[dto::LifecycleRule]) -> S3Result<()> {
    bucket.set(LIFECYCLE, Some(&rules)).await
}

pub(crate) async fn get_notification(bucket: &Bucket) -> S3Result<dto::NotificationConfiguration> {
    Ok(bucket.setting(NOTIFICATION).await?.unwrap_or_default())
}

pub(crate) async fn put_notification(
    bucket: &Bucket,
    configuration: &dto::NotificationConfiguration,
) -> S3Result<()> {
    let is_empty = *configuration == dto::NotificationConfiguration::default();
    bucket.set(NOTIFICATION, (!is_empty).then_some(configuration)).await
}

pub(crate) async fn get_ownership(bucket: &Bucket) -> S3Result<dto::OwnershipControls> {
    let ownership: Option<String> = bucket.setting(OWNERSHIP).await?;
    let ownership = ownership.ok_or_else(|| {
        s3_error!(OwnershipControlsNotFoundError, "The bucket ownership controls were not found")
    })?;
    let rule = dto::OwnershipControlsRule { object_ownership: dto::ObjectOwnership::from(ownership) };
    Ok(dto::OwnershipControls { rules: vec![rule] })
}

pub(crate) async fn put_ownership(bucket: &Bucket, controls: &dto::OwnershipControls) -> S3Result<()> {
    let [rule] = controls.rules.as_slice() else { return Err(malformed_xml()) };
    let ownership = rule.object_ownership.as_str();
    if !OWNERSHIPS.contains(&ownership) {
        return Err(malformed_xml());
    }
    bucket.set(OWNERSHIP, Some(&ownership)).await
}
