//! Object Lock: a bucket's default retention, retention periods and legal holds (S3 User Guide, "Locking objects with
//! Object Lock").

use s3s::dto::{self, ObjectLockConfiguration, Timestamp, TimestampFormat};
use s3s::{S3Error, S3Result, s3_error};
use store::{Attributes, Lock, LockMode, ObjectKey, Retention, Versioning, Versions};

use crate::bucket::{Bucket, key};
use crate::error::{custom, invalid_argument, malformed_xml, not_implemented};
use crate::headers;
use crate::version_lookup::{self, StoredVersion, from_versions};

const SETTING: &str = "object-lock";
const ENABLED: &str = "Enabled";
/// S3's maximum default retention.
const DAYS_MAX: i32 = 36_500;
const YEARS_MAX: i32 = 100;
const DAY_NANOS: i64 = 86_400 * 1_000_000_000;

/// The lock that a write asks for.
#[derive(Debug, Clone, Default)]
pub(crate) struct LockRequest {
    /// The mode of the retention, as the request spells it.
    pub(crate) mode: Option<String>,
    /// The end of the retention.
    pub(crate) until: Option<Timestamp>,
    pub(crate) legal_hold: Option<String>,
}

/// Collects the lock fields of the input of PUT, CreateMultipartUpload or CopyObject.
macro_rules! lock_request {
    ($input:expr) => {
        $crate::ops::lock::LockRequest {
            mode: $input.object_lock_mode.as_ref().map(|mode| mode.as_str().to_owned()),
            until: $input.object_lock_retain_until_date.clone(),
            legal_hold: $input.object_lock_legal_hold_status.as_ref().map(|held| held.as_str().to_owned()),
        }
    };
}
pub(crate) use lock_request;

impl LockRequest {
    fn lock(self, now: store::Timestamp) -> S3Result<Lock> {
        let legal_hold = match self.legal_hold.as_deref() {
            None => None,
            Some("ON") => Some(true),
            Some("OFF") => Some(false),
            Some(other) => {
                let name = "x-amz-object-lock-legal-hold";
                return Err(invalid_argument("Legal Hold must be either of 'ON' or 'OFF'", name, other));
            }
        };
        let both = "x-amz-object-lock-retain-until-date and x-amz-object-lock-mode must both be supplied.";
        let retention = match (self.mode, self.until) {
            (None, None) => None,
            (None, Some(_)) => return Err(invalid_argument(both, "x-amz-object-lock-mode", "")),
            (Some(_), None) => return Err(invalid_argument(both, "x-amz-object-lock-retain-until-date", "")),
            (Some(mode), Some(until)) => {
                let named = LockMode::named(&mode).ok_or_else(|| {
                    invalid_argument("Unknown wormMode directive.", "x-amz-object-lock-mode", &mode)
                })?;
                Some(Retention { mode: named, until: check_future(&until, now)? })
            }
        };
        Ok(Lock { retention, legal_hold })
    }
}

/// Converts a time that must lie in the future. Error: `InvalidArgument`.
fn check_future(until: &Timestamp, now: store::Timestamp) -> S3Result<store::Timestamp> {
    let time = headers::store_timestamp(until);
    if time > now {
        return Ok(time);
    }
    let shown = headers::format_time(until, TimestampFormat::DateTime);
    let name = "x-amz-object-lock-retain-until-date";
    Err(invalid_argument("The retain until date must be in the future!", name, &shown))
}

/// Adds the lock of a new object to its attributes: the requested one, or the bucket's default retention. Fails with
/// `InvalidRequest` if a lock is requested in a bucket without Object Lock.
pub(crate) async fn apply_lock(
    bucket: &Bucket,
    attributes: &mut Attributes,
    requested: LockRequest,
    now: store::Timestamp,
) -> S3Result<()> {
    let requested = requested.lock(now)?;
    let configuration = configuration(bucket).await?;
    if requested != Lock::default() && configuration.is_none() {
        return Err(s3_error!(InvalidRequest, "Bucket is missing ObjectLockConfiguration"));
    }
    let default = || configuration.as_ref().and_then(|found| default_retention(found, now));
    let lock = Lock { retention: requested.retention.or_else(default), ..requested };
    lock.write(attributes);
    Ok(())
}

fn default_retention(configuration: &ObjectLockConfiguration, now: store::Timestamp) -> Option<Retention> {
    let rule = configuration.rule.as_ref()?.default_retention.as_ref()?;
    let mode = LockMode::named(rule.mode.as_ref()?.as_str())?;
    let days = i64::from(rule.days.unwrap_or(0)) + i64::from(rule.years.unwrap_or(0)) * 365;
    Some(Retention { mode, until: store::Timestamp(now.0.saturating_add(days.saturating_mul(DAY_NANOS))) })
}

/// Returns the bucket's lock configuration; `None` if its objects cannot be locked.
async fn configuration(bucket: &Bucket) -> S3Result<Option<ObjectLockConfiguration>> {
    bucket.setting(SETTING).await
}

/// Returns whether objects of the bucket can be locked.
pub(crate) async fn is_enabled(bucket: &Bucket) -> S3Result<bool> {
    Ok(configuration(bucket).await?.is_some())
}

/// Enables Object Lock, and versioning, which it needs.
pub(crate) async fn enable(bucket: &Bucket) -> S3Result<()> {
    let versions = versions(bucket)?;
    versions.set_state(Versioning::Enabled).await.map_err(crate::error::from_store)?;
    let enabled = dto::ObjectLockEnabled::from_static(ENABLED);
    let configuration = ObjectLockConfiguration { object_lock_enabled: Some(enabled), rule: None };
    bucket.set(SETTING, Some(&configuration)).await
}

pub(crate) async fn get_configuration(bucket: &Bucket) -> S3Result<ObjectLockConfiguration> {
    configuration(bucket).await?.ok_or_else(|| {
        let message = "Object Lock configuration does not exist for this bucket.";
        custom("ObjectLockConfigurationNotFoundError", http::StatusCode::NOT_FOUND, message)
    })
}

pub(crate) async fn put_configuration(
    bucket: &Bucket,
    given: Option<ObjectLockConfiguration>,
) -> S3Result<()> {
    let given = given.ok_or_else(|| s3_error!(MissingRequestBodyError, "Request Body is empty"))?;
    let is_enabled = given.object_lock_enabled.as_ref().is_some_and(|enabled| enabled.as_str() == ENABLED);
    if !is_enabled {
        return Err(malformed_xml());
    }
    if let Some(rule) = &given.rule {
        check_default(rule.default_retention.as_ref().ok_or_else(malformed_xml)?)?;
    }
    versions(bucket)?;
    if version_lookup::versioning_state(bucket).await? != Versioning::Enabled {
        let message = "Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration";
        return Err(custom("InvalidBucketState", http::StatusCode::CONFLICT, message));
    }
    bucket.set(SETTING, Some(&given)).await
}

fn check_default(rule: &dto::DefaultRetention) -> S3Result<()> {
    let mode = rule.mode.as_ref().map(|mode| mode.as_str()).unwrap_or_default();
    let (value, name, max) = match (rule.days, rule.years) {
        (Some(days), None) => (days, "Days", DAYS_MAX),
        (None, Some(years)) => (years, "Years", YEARS_MAX),
        _ => return Err(malformed_xml()),
    };
    if LockMode::named(mode).is_none() {
        return Err(malformed_xml());
    }
    let wrong = |message: &str| Err(invalid_argument(message, name, &value.to_string()));
    match value {
        ..=0 => wrong("Default retention period must be a positive integer value."),
        value if value > max => wrong("Default retention period too large."),
        _ => Ok(()),
    }
}

pub(crate) async fn get_retention(
    bucket: &Bucket,
    input: &dto::GetObjectRetentionInput,
) -> S3Result<dto::GetObjectRetentionOutput> {
    let found = find_lockable(bucket, &key(&input.key)?, input.version_id.as_deref()).await?;
    let retention = Lock::of(&found.meta.attributes).retention.ok_or_else(no_lock)?;
    let retention = dto::ObjectLockRetention {
        mode: Some(dto::ObjectLockRetentionMode::from_static(retention.mode.name())),
        retain_until_date: Some(headers::timestamp(retention.until)),
    };
    Ok(dto::GetObjectRetentionOutput { retention: Some(retention) })
}

pub(crate) async fn put_retention(
    bucket: &Bucket,
    input: dto::PutObjectRetentionInput,
    now: store::Timestamp,
) -> S3Result<()> {
    let given = input.retention.ok_or_else(malformed_xml)?;
    let retention = match (given.mode, given.retain_until_date) {
        (None, None) => None,
        (Some(mode), Some(until)) => {
            let mode = LockMode::named(mode.as_str()).ok_or_else(malformed_xml)?;
            Some(Retention { mode, until: check_future(&until, now)? })
        }
        _ => return Err(malformed_xml()),
    };
    let key = key(&input.key)?;
    let found = find_lockable(bucket, &key, input.version_id.as_deref()).await?;
    let bypass = input.bypass_governance_retention.unwrap_or(false);
    let set = versions(bucket)?.set_retention(&key, &found.id, retention, bypass).await;
    set.map_err(|error| from_versions(error, &found.id))
}

pub(crate) async fn get_legal_hold(
    bucket: &Bucket,
    input: &dto::GetObjectLegalHoldInput,
) -> S3Result<dto::GetObjectLegalHoldOutput> {
    let found = find_lockable(bucket, &key(&input.key)?, input.version_id.as_deref()).await?;
    let is_held = Lock::of(&found.meta.attributes).legal_hold.ok_or_else(no_lock)?;
    let status = dto::ObjectLockLegalHoldStatus::from_static(if is_held { "ON" } else { "OFF" });
    let legal_hold = Some(dto::ObjectLockLegalHold { status: Some(status) });
    Ok(dto::GetObjectLegalHoldOutput { legal_hold })
}

pub(crate) async fn put_legal_hold(bucket: &Bucket, input: dto::PutObjectLegalHoldInput) -> S3Result<()> {
    let status = input.legal_hold.and_then(|given| given.status).ok_or_else(malformed_xml)?;
    let is_held = match status.as_str() {
        "ON" => true,
        "OFF" => false,
        _ => return Err(malformed_xml()),
    };
    let key = key(&input.key)?;
    let found = find_lockable(bucket, &key, input.version_id.as_deref()).await?;
    let set = versions(bucket)?.set_legal_hold(&key, &found.id, is_held).await;
    set.map_err(|error| from_versions(error, &found.id))
}

/// Returns the version that a request about locks refers to. `InvalidRequest` if the bucket has no Object Lock.
async fn find_lockable(bucket: &Bucket, key: &ObjectKey, id: Option<&str>) -> S3Result<StoredVersion> {
    let found = version_lookup::find_stored(bucket, key, id).await?;
    match is_enabled(bucket).await? {
        true => Ok(found),
        false => Err(s3_error!(InvalidRequest, "Bucket is missing Object Lock Configuration")),
    }
}

fn versions(bucket: &Bucket) -> S3Result<&dyn Versions> {
    bucket.store.versions().ok_or_else(|| not_implemented("Versions of objects in this bucket"))
}

fn no_lock() -> S3Error {
    let message = "The specified object does not have a ObjectLock configuration.";
    custom("NoSuchObjectLockConfiguration", http::StatusCode::NOT_FOUND, message)
}
