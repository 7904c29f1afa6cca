//! Lookup of the object version that a request names, and errors for versions that do not exist.

use http::header::{ALLOW, HeaderName, HeaderValue, LAST_MODIFIED};
use s3s::dto::TimestampFormat;
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use store::{NULL_VERSION, ObjectKey, ObjectMeta, ObjectRef, StoreError, Version, VersionId, Versioning};

use crate::bucket::Bucket;
use crate::error::{from_store, invalid_argument};
use crate::error_document::with_details;

const DELETE_MARKER: HeaderName = HeaderName::from_static("x-amz-delete-marker");
const VERSION_ID: HeaderName = HeaderName::from_static("x-amz-version-id");

/// Returns the metadata of the named version, or of the current object without an id. Errors: `NoSuchKey`,
/// `NoSuchVersion`, `MethodNotAllowed` for a delete marker.
pub(crate) async fn head(bucket: &Bucket, key: &ObjectKey, id: Option<&str>) -> S3Result<ObjectMeta> {
    let Some(id) = id.filter(|id| !id.is_empty()) else {
        return match bucket.store.head(key).await {
            Err(StoreError::NotFound(_)) => Err(not_found_error(bucket, key).await),
            found => found.map_err(from_store),
        };
    };
    let version = find(bucket, key, id).await?;
    let marked = || delete_marker_error(&version, S3ErrorCode::MethodNotAllowed);
    version.stored.clone().ok_or_else(marked)
}

/// Returns the named version, which may be a delete marker. Errors: `NoSuchVersion`, `InvalidArgument` for a malformed
/// id.
pub(crate) async fn find(bucket: &Bucket, key: &ObjectKey, id: &str) -> S3Result<Version> {
    match bucket.store.versions() {
        Some(versions) => versions.find(key, Some(id)).await.map_err(|error| from_versions(error, id)),
        // A bucket without versioning shows each object as the version `null`.
        None if id == NULL_VERSION => {
            let meta = bucket.store.head(key).await.map_err(|error| from_versions(error, id))?;
            Ok(null_version(meta))
        }
        None => Err(unknown_version_error(key, id)),
    }
}

/// Returns an object of a bucket without versioning as a version.
pub(crate) fn null_version(meta: ObjectMeta) -> Version {
    Version {
        key: meta.object.key.clone(),
        id: NULL_VERSION.into(),
        is_newest: true,
        last_modified: meta.object.last_modified.unwrap_or_default(),
        stored: Some(meta),
    }
}

/// Returns the version that a request about tags or locks refers to. Errors: as those of [`head`].
pub(crate) async fn find_stored(
    bucket: &Bucket,
    key: &ObjectKey,
    id: Option<&str>,
) -> S3Result<StoredVersion> {
    let meta = head(bucket, key, id).await?;
    let id = meta.object.version.clone().unwrap_or_else(|| NULL_VERSION.into());
    Ok(StoredVersion { id, meta })
}

/// A version with its metadata.
pub(crate) struct StoredVersion {
    pub(crate) id: VersionId,
    pub(crate) meta: ObjectMeta,
}

/// Returns the version id of an object just written, for the response. Versions called `null` are not shown.
pub(crate) fn written_version(object: &ObjectRef) -> Option<String> {
    object.version.as_deref().filter(|id| *id != NULL_VERSION).map(str::to_owned)
}

/// Returns `NoSuchKey`; its headers say whether a delete marker hides the object.
pub(crate) async fn not_found_error(bucket: &Bucket, key: &ObjectKey) -> S3Error {
    let no_such_key = || from_store(StoreError::NotFound(key.clone()));
    let Some(versions) = bucket.store.versions() else { return no_such_key() };
    match versions.find(key, None).await {
        Ok(marker) if marker.stored.is_none() => delete_marker_error(&marker, S3ErrorCode::NoSuchKey),
        _ => no_such_key(),
    }
}

/// Returns the error for a request that hits a delete marker.
fn delete_marker_error(marker: &Version, code: S3ErrorCode) -> S3Error {
    let is_named = code == S3ErrorCode::MethodNotAllowed;
    let mut error = S3Error::new(code);
    let mut headers = http::HeaderMap::new();
    headers.insert(DELETE_MARKER, HeaderValue::from_static("true"));
    if let Ok(id) = HeaderValue::from_str(&marker.id) {
        headers.insert(VERSION_ID, id);
    }
    if is_named {
        headers.insert(ALLOW, HeaderValue::from_static("DELETE"));
        let modified = crate::headers::timestamp(marker.last_modified);
        let modified = crate::headers::format_time(&modified, TimestampFormat::HttpDate);
        if let Ok(modified) = HeaderValue::try_from(modified) {
            headers.insert(LAST_MODIFIED, modified);
        }
    }
    error.set_headers(headers);
    error
}

/// Converts the error of a call that names a version.
pub(crate) fn from_versions(error: StoreError, id: &str) -> S3Error {
    match error {
        StoreError::Invalid(_) => invalid_version_error(id),
        StoreError::NotFound(key) => {
            let error = s3_error!(NoSuchVersion, "The specified version does not exist.");
            with_details(error, &[("Key", &key.to_string()), ("VersionId", id)])
        }
        error => from_store(error),
    }
}

/// Returns the error for a version id in a bucket without versioning: unknown or malformed.
pub(crate) fn unknown_version_error(key: &ObjectKey, id: &str) -> S3Error {
    match store::version_id::is_one(id) {
        true => from_versions(StoreError::NotFound(key.clone()), id),
        false => invalid_version_error(id),
    }
}

fn invalid_version_error(id: &str) -> S3Error {
    invalid_argument("Invalid version id specified", "versionId", id)
}

/// Returns the bucket's versioning state; `Never` if its store has no versions.
pub(crate) async fn versioning_state(bucket: &Bucket) -> S3Result<Versioning> {
    match bucket.store.versions() {
        Some(versions) => versions.state().await.map_err(from_store),
        None => Ok(Versioning::Never),
    }
}
