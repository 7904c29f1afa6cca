//! A bucket's versioning state, and the listing of versions.

use bytes::Bytes;
use s3s::dto::{self, BucketVersioningStatus};
use s3s::{S3Result, s3_error};
use store::{
    Attributes, ListEntry, ListVersions, ListedObject, ObjectMeta, Version, VersionEntry, VersionId,
    Versioning, Versions,
};

use crate::bucket::Bucket;
use crate::checksums::Checksum;
use crate::error::{custom, from_store, invalid_argument, malformed_xml, not_implemented};
use crate::headers;
use crate::ops::listing::{Encoding, non_empty};
use crate::ops::lock;
use crate::pagination::{self, PageRequest, common_prefix};
use crate::version_lookup::{self, from_versions};

pub(crate) async fn get_state(bucket: &Bucket) -> S3Result<dto::GetBucketVersioningOutput> {
    let status = match version_lookup::versioning_state(bucket).await? {
        Versioning::Never => None,
        Versioning::Enabled => Some(BucketVersioningStatus::from_static("Enabled")),
        Versioning::Suspended => Some(BucketVersioningStatus::from_static("Suspended")),
    };
    Ok(dto::GetBucketVersioningOutput { status, ..Default::default() })
}

pub(crate) async fn put_state(bucket: &Bucket, given: dto::VersioningConfiguration) -> S3Result<()> {
    if given.mfa_delete.as_ref().is_some_and(|mfa| mfa.as_str() != "Disabled") {
        return Err(not_implemented("MFA Delete"));
    }
    let state = match given.status.as_ref().map(|status| status.as_str()) {
        Some("Enabled") => Versioning::Enabled,
        Some("Suspended") => Versioning::Suspended,
        _ => return Err(malformed_xml()),
    };
    if state == Versioning::Suspended && lock::is_enabled(bucket).await? {
        let message = "An Object Lock configuration is present on this bucket, so the versioning state cannot be changed.";
        return Err(custom("InvalidBucketState", http::StatusCode::CONFLICT, message));
    }
    let versions = bucket.store.versions();
    let versions = versions.ok_or_else(|| not_implemented("Versions of objects in this bucket"))?;
    versions.set_state(state).await.map_err(from_store)
}

/// Lists versions. A bucket without versioning shows each object as the version `null`.
pub(crate) async fn list(
    bucket: &Bucket,
    owner: &dto::Owner,
    input: dto::ListObjectVersionsInput,
) -> S3Result<dto::ListObjectVersionsOutput> {
    let encoding = Encoding::of(input.encoding_type.as_ref())?;
    let versions = bucket.store.versions();
    let limit = match input.max_keys.filter(|max| versions.is_some() && *max < 0) {
        Some(max) => {
            return Err(invalid_argument("max-keys cannot be negative", "maxKeys", &max.to_string()));
        }
        None => pagination::limit(input.max_keys, "max-keys")?,
    };
    let delimiter = input.delimiter.filter(|delimiter| !delimiter.is_empty());
    let key_marker = input.key_marker.filter(|marker| !marker.is_empty());
    let version_marker = input.version_id_marker.filter(|marker| !marker.is_empty());
    if version_marker.is_some() && key_marker.is_none() {
        return Err(s3_error!(
            InvalidArgument,
            "A version-id marker cannot be specified without a key marker."
        ));
    }
    let page_request = PageRequest {
        prefix: Bytes::from(input.prefix.clone().unwrap_or_default()),
        delimiter: delimiter.clone(),
        after: key_marker.clone().map(Bytes::from),
        limit,
        ..PageRequest::default()
    };
    let (entries, is_truncated) = match versions {
        Some(versions) => {
            page(versions, page_request, version_marker.as_deref().map(VersionId::from)).await?
        }
        None => page_without_versions(bucket, &page_request).await?,
    };
    let last = entries.last().filter(|_| is_truncated);
    let mut output = dto::ListObjectVersionsOutput {
        name: Some(bucket.name.clone()),
        prefix: Some(encoding.text(input.prefix.unwrap_or_default().as_bytes())),
        key_marker: Some(encoding.text(key_marker.unwrap_or_default().as_bytes())),
        version_id_marker: Some(version_marker.unwrap_or_default()),
        next_key_marker: last.map(|last| encoding.text(last.text())),
        next_version_id_marker: last.and_then(|last| match last {
            VersionEntry::Version(version) => Some(version.id.to_string()),
            VersionEntry::Prefix(_) => None,
        }),
        max_keys: i32::try_from(limit).ok(),
        is_truncated: Some(is_truncated),
        delimiter: delimiter.map(|delimiter| encoding.text(delimiter.as_bytes())),
        encoding_type: input.encoding_type,
        ..Default::default()
    };
    let (mut stored, mut markers, mut prefixes) = (Vec::new(), Vec::new(), Vec::new());
    for entry in entries {
        match entry {
            VersionEntry::Prefix(prefix) => {
                prefixes.push(dto::CommonPrefix { prefix: Some(encoding.text(&prefix)) });
            }
            VersionEntry::Version(version) if version.stored.is_none() => {
                markers.push(marker_to_dto(&version, encoding, owner));
            }
            VersionEntry::Version(version) => stored.push(to_dto(&version, encoding, owner)),
        }
    }
    (output.versions, output.delete_markers) = (non_empty(stored), non_empty(markers));
    output.common_prefixes = non_empty(prefixes);
    Ok(output)
}

fn to_dto(version: &Version, encoding: Encoding, owner: &dto::Owner) -> dto::ObjectVersion {
    let meta = version.stored.as_ref();
    let checksum = meta.and_then(Checksum::of_object);
    let class = meta.map(|meta| headers::storage_class(&meta.attributes).into());
    dto::ObjectVersion {
        key: Some(encoding.text(version.key.as_bytes())),
        version_id: Some(version.id.to_string()),
        is_latest: Some(version.is_newest),
        last_modified: Some(headers::timestamp(version.last_modified)),
        e_tag: meta.map(|meta| headers::etag(&meta.object.etag)),
        size: meta.and_then(|meta| i64::try_from(meta.size_bytes).ok()),
        owner: Some(owner.clone()),
        storage_class: class,
        checksum_algorithm: checksum.as_ref().map(|checksum| vec![checksum.algorithm.dto()]),
        checksum_type: checksum.as_ref().map(Checksum::kind),
        ..Default::default()
    }
}

fn marker_to_dto(version: &Version, encoding: Encoding, owner: &dto::Owner) -> dto::DeleteMarkerEntry {
    dto::DeleteMarkerEntry {
        key: Some(encoding.text(version.key.as_bytes())),
        version_id: Some(version.id.to_string()),
        is_latest: Some(version.is_newest),
        last_modified: Some(headers::timestamp(version.last_modified)),
        owner: Some(owner.clone()),
    }
}

/// Returns a page of a bucket without versioning, and whether more follow.
async fn page_without_versions(
    bucket: &Bucket,
    page_request: &PageRequest,
) -> S3Result<(Vec<VersionEntry>, bool)> {
    let page = pagination::page(bucket.store.as_ref(), page_request).await?;
    let entries = page.entries.into_iter().map(|entry| match entry {
        ListEntry::Prefix(prefix) => VersionEntry::Prefix(prefix),
        ListEntry::Object(ListedObject { object, size_bytes, .. }) => {
            let meta = ObjectMeta { object, size_bytes, attributes: Attributes::default(), tag_count: None };
            VersionEntry::Version(Box::new(version_lookup::null_version(meta)))
        }
    });
    Ok((entries.collect(), page.is_truncated))
}

/// Returns a page, and whether more follow. The store rolls up at one-byte delimiters; longer delimiters are handled
/// here.
async fn page(
    versions: &dyn Versions,
    page_request: PageRequest,
    after_version: Option<VersionId>,
) -> S3Result<(Vec<VersionEntry>, bool)> {
    let delimiter = page_request.delimiter.as_deref().unwrap_or_default().as_bytes();
    let marker = after_version.clone().unwrap_or_default();
    let mut request = ListVersions {
        prefix: page_request.prefix.clone(),
        delimiter: (delimiter.len() == 1).then(|| delimiter[0]),
        after: page_request.after,
        after_version,
        limit: 0,
    };
    let mut entries: Vec<VersionEntry> = Vec::new();
    if page_request.limit == 0 {
        return Ok((entries, false));
    }
    loop {
        // Request one entry more than needed to find out whether more follow.
        request.limit = page_request.limit - entries.len() + 1;
        let found = versions.list(request.clone()).await.map_err(|error| from_versions(error, &marker))?;
        let is_end = found.len() < request.limit;
        if let Some(last) = found.last() {
            request.after = Some(Bytes::copy_from_slice(last.text()));
            request.after_version = match last {
                VersionEntry::Version(version) => Some(version.id.clone()),
                VersionEntry::Prefix(_) => None,
            };
        }
        for entry in found {
            let entry = match common_prefix(entry.text(), &page_request.prefix, delimiter) {
                Some(prefix) => VersionEntry::Prefix(prefix),
                None => entry,
            };
            let is_known = matches!((&entry, entries.last()),
                (VersionEntry::Prefix(one), Some(VersionEntry::Prefix(other))) if one == other);
            if is_known {
                continue;
            }
            if entries.len() == page_request.limit {
                return Ok((entries, true));
            }
            entries.push(entry);
        }
        if is_end {
            return Ok((entries, false));
        }
    }
}
