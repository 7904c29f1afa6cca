//! Bucket owners: the user to whom the list of users assigns the bucket, otherwise its creator, otherwise the first
//! administrator.
//!
//! Users are no AWS accounts, but a bucket's owner is what an account is at AWS: its ACL begins with the owner, who may
//! do everything with it.

use s3s::S3Result;
use s3s::dto;

use crate::bucket::Bucket;
use crate::users::Users;

/// The name of the setting that keeps a bucket's creator.
const SETTING: &str = "owner";

/// Returns the access key of a bucket's owner.
pub(crate) async fn find(bucket: &Bucket, users: &Users) -> S3Result<String> {
    if let Some(named) = users.assigned_owner(&bucket.name) {
        return Ok(named);
    }
    let made_by: Option<String> = bucket.setting(SETTING).await?;
    let still_there = made_by.filter(|user| users.get(user).is_some());
    Ok(still_there.unwrap_or_else(|| users.default_owner()))
}

/// Keeps a bucket's creator, if the bucket supports settings.
pub(crate) async fn record(bucket: &Bucket, user: &str) -> S3Result<()> {
    match bucket.store.settings() {
        Some(_) => bucket.set(SETTING, Some(&user)).await,
        None => Ok(()),
    }
}

/// Returns an owner as responses show it.
pub(crate) fn to_dto(access_key: String) -> dto::Owner {
    dto::Owner { id: Some(access_key.clone()), display_name: Some(access_key) }
}
