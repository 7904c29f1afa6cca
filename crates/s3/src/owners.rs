//! Whose a bucket is: of who the list of users says, else of who made it, else the first administrator's.
//!
//! Users are no accounts of AWS, but a bucket's owner is what an account is there: its access lists begin with the owner,
//! who may do everything with it.

use s3s::S3Result;
use s3s::dto;

use crate::bucket::Bucket;
use crate::users::Users;

/// The document that says who made a bucket.
const SETTING: &str = "owner";

/// The access key of a bucket's owner.
pub(crate) async fn of(bucket: &Bucket, users: &Users) -> S3Result<String> {
    if let Some(named) = users.owner_of(&bucket.name) {
        return Ok(named);
    }
    let made_by: Option<String> = bucket.setting(SETTING).await?;
    let still_there = made_by.filter(|user| users.get(user).is_some());
    Ok(still_there.unwrap_or_else(|| users.first_admin()))
}

/// Keeps who made a bucket, where the bucket can keep anything.
pub(crate) async fn record(bucket: &Bucket, user: &str) -> S3Result<()> {
    match bucket.store.settings() {
        Some(_) => bucket.set(SETTING, Some(&user)).await,
        None => Ok(()),
    }
}

/// An owner as answers show it.
pub(crate) fn shown(access_key: String) -> dto::Owner {
    dto::Owner { id: Some(access_key.clone()), display_name: Some(access_key) }
}
