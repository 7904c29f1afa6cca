//! CopyObject, and the handling of copy sources that it shares with UploadPartCopy.

use futures_util::StreamExt as _;
use s3s::dto::{self, CopyObjectInput, CopyObjectOutput};
use s3s::{S3Result, s3_error};
use std::ops::Range;
use store::{CopyOptions, GetOptions, ObjectKey, ObjectMeta, ObjectRef, Precondition, Tags};

use crate::admission::AdmittedClient;
use crate::body::{self, BodyReader, NewObject};
use crate::bucket::{Bucket, key};
use crate::checksums::{Algorithm, Checksum, Declared, Digests, write_checksum};
use crate::conditions::{self, Conditions};
use crate::copy_source;
use crate::error::{from_store, invalid_argument};
use crate::headers::{self, WEBSITE_REDIRECT, given_attributes};
use crate::lifecycle;
use crate::metadata_names::{CHECKSUM, PART_CHECKSUMS, PARTS};
use crate::ops::{lock, tagging};
use crate::version_lookup;

/// S3's maximum length of an object for one CopyObject, in bytes.
const COPIED_BYTES_MAX: u64 = 5 << 30;

/// The source of a copy.
pub(crate) struct Source {
    pub(crate) bucket: Bucket,
    pub(crate) meta: ObjectMeta,
}

/// Returns the source of a copy. `NoSuchKey` or `NoSuchVersion` if there is none, `PreconditionFailed` if it does not
/// satisfy the conditions.
pub(crate) async fn find_source(
    bucket: Bucket,
    key: &ObjectKey,
    version: Option<&str>,
    conditions: &Conditions,
) -> S3Result<Source> {
    let meta = version_lookup::head(&bucket, key, version).await?;
    conditions.check_source(&meta)?;
    Ok(Source { bucket, meta })
}

macro_rules! source_conditions {
    ($input:expr) => {
        $crate::conditions::Conditions {
            lists: Default::default(),
            if_match: $input.copy_source_if_match.clone(),
            if_none_match: $input.copy_source_if_none_match.clone(),
            if_modified_since: $input.copy_source_if_modified_since.clone(),
            if_unmodified_since: $input.copy_source_if_unmodified_since.clone(),
        }
    };
}
pub(crate) use source_conditions;

pub(crate) async fn copy(
    from: Bucket,
    to: Bucket,
    input: CopyObjectInput,
    request_headers: &http::HeaderMap,
    now: store::Timestamp,
    admitted: Option<AdmittedClient>,
) -> S3Result<CopyObjectOutput> {
    let (source_bucket, source_key, source_version) = copy_source::parts(&input.copy_source)?;
    let target_key = key(&input.key)?;
    let replaces = is_replace(
        input.metadata_directive.as_ref().map(|d| d.as_str()),
        "x-amz-metadata-directive",
        "Unknown metadata directive.",
    )?;
    let replaces_tags = is_replace(
        input.tagging_directive.as_ref().map(|d| d.as_str()),
        "x-amz-tagging-directive",
        "Unknown tagging directive.",
    )?;
    let algorithm =
        input.checksum_algorithm.as_ref().map(|named| Algorithm::from_name(named.as_str())).transpose()?;
    let is_same = source_bucket == to.name && source_key == target_key && source_version.is_none();
    let changes_class = input.storage_class.is_some();
    if is_same && !replaces && !changes_class && input.website_redirect_location.is_none() {
        return Err(s3_error!(
            InvalidRequest,
            "This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata, storage class, website redirect location or encryption attributes."
        ));
    }
    let source = find_source(from, &source_key, source_version, &source_conditions!(input)).await?;
    if source.meta.size_bytes > COPIED_BYTES_MAX {
        return Err(s3_error!(
            InvalidRequest,
            "The specified copy source is larger than the maximum allowable size for a copy source: 5368709120"
        ));
    }
    let precondition = conditions::header_precondition(request_headers)?;
    let given = given_attributes!(input, request_headers)?;
    let mut attributes = if replaces { given } else { source.meta.attributes.clone() };
    // Website redirects and locks are not copied.
    let redirect = input.website_redirect_location.clone();
    attributes.system.remove(WEBSITE_REDIRECT);
    attributes.system.extend(redirect.map(|target| (WEBSITE_REDIRECT.to_owned(), target)));
    lock::apply_lock(&to, &mut attributes, lock::lock_request!(input), now).await?;
    // A copy has the standard storage class unless the request names another (S3 API, CopyObject).
    attributes.storage_class = input.storage_class.as_ref().map(|class| class.as_str().to_owned());
    // Checksums and part sizes stay valid, since the bytes are the same.
    for own in [CHECKSUM, PARTS, PART_CHECKSUMS] {
        if let Some(value) = source.meta.attributes.user.get(own) {
            attributes.user.insert(own.to_owned(), value.clone());
        }
    }
    if let Some(named) = algorithm
        && Checksum::of_object(&source.meta).is_none_or(|known| known.algorithm != named)
    {
        let computed = compute_checksum(&source.bucket, &source.meta, None, named).await?;
        attributes.user.insert(CHECKSUM.to_owned(), computed.to_text());
        attributes.user.remove(PART_CHECKSUMS);
    }
    let tags = match replaces_tags {
        true => Some(headers::tags_of_header(input.tagging.as_deref())?),
        false => None,
    };
    let checksum = attributes.user.get(CHECKSUM).and_then(|text| Checksum::from_text(text));
    let object = if source_bucket == to.name {
        let size_bytes = Some(source.meta.size_bytes);
        let options = CopyOptions {
            attributes: Some(attributes),
            tags,
            precondition,
            size_bytes,
            ..CopyOptions::default()
        };
        to.store.copy(&source.meta.object, &target_key, options).await.map_err(from_store)?
    } else {
        let target = (&to, &target_key);
        copy_across_stores(target, &source, attributes, tags, precondition, admitted).await?
    };
    let modified = match object.last_modified {
        Some(modified) => Some(modified),
        None => to.store.head(&target_key).await.map_err(from_store)?.object.last_modified,
    };
    let mut result = dto::CopyObjectResult {
        e_tag: Some(headers::etag(&object.etag)),
        last_modified: modified.map(headers::timestamp),
        checksum_type: checksum.as_ref().map(Checksum::kind),
        ..Default::default()
    };
    write_checksum!(result, checksum);
    Ok(CopyObjectOutput {
        expiration: lifecycle::expiration_header_of_stored(&to, &object).await,
        copy_object_result: Some(result),
        copy_source_version_id: source.meta.object.version.map(String::from),
        version_id: version_lookup::written_version(&object),
        ..Default::default()
    })
}

/// Returns whether a directive of a copy is `REPLACE`; without one it is `COPY`.
fn is_replace(given: Option<&str>, name: &str, unknown: &str) -> S3Result<bool> {
    match given {
        None | Some("COPY") => Ok(false),
        Some("REPLACE") => Ok(true),
        Some(other) => Err(invalid_argument(unknown, name, other)),
    }
}

/// Copies between two stores by reading and writing the bytes.
async fn copy_across_stores(
    (to, target): (&Bucket, &ObjectKey),
    source: &Source,
    attributes: store::Attributes,
    tags: Option<Tags>,
    precondition: Precondition,
    admitted: Option<AdmittedClient>,
) -> S3Result<ObjectRef> {
    let from = &source.meta.object;
    let tags = match tags {
        Some(tags) => tags,
        None => tagging::read(&source.bucket, from).await?,
    };
    let options = GetOptions {
        if_match: Some(from.etag.clone()),
        version: from.version.clone(),
        ..GetOptions::default()
    };
    let object = source.bucket.store.get(&from.key, options).await.map_err(from_store)?;
    let digests = Digests::begin(Declared::default(), None)?;
    let body = body::object_body(object.body, source.meta.size_bytes);
    let reader = BodyReader::new(Some(body), Some(source.meta.size_bytes), digests, admitted);
    let target = NewObject { store: to.store.as_ref(), key: target, attributes, tags, precondition };
    Ok(body::put(reader, target).await?.object)
}

/// Returns the checksum of an object, or of a range of it, computed from the bytes.
pub(crate) async fn compute_checksum(
    bucket: &Bucket,
    meta: &ObjectMeta,
    range: Option<Range<u64>>,
    algorithm: Algorithm,
) -> S3Result<Checksum> {
    let from = &meta.object;
    let range = range.filter(|range| !range.is_empty());
    let options = GetOptions { if_match: Some(from.etag.clone()), version: from.version.clone(), range };
    let mut body = bucket.store.get(&from.key, options).await.map_err(from_store)?.body;
    let mut digests = Digests::begin(Declared::default(), Some(algorithm))?;
    while let Some(piece) = body.next().await {
        digests.update(&piece.map_err(from_store)?);
    }
    digests.finish()?.checksum.ok_or_else(|| s3_error!(InternalError, "a checksum was not computed"))
}
