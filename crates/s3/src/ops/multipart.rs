//! Multipart uploads: the operations that begin, fill, complete, abort and list them.

use s3s::dto::{self, CompletedPart};
use s3s::{S3Error, S3Result, s3_error};
use std::collections::{BTreeMap, BTreeSet};
use store::{CompleteOptions, GetOptions, ObjectKey, ObjectRef, Part, StoreError, Upload};

use crate::admission::AdmittedClient;
use crate::body::{self, BodyReader};
use crate::bucket::{Bucket, key};
use crate::checksums::{self, Algorithm, Checksum, Declared, Digests, Trailer};
use crate::checksums::{given_checksums, show_checksum, write_checksum};
use crate::conditions;
use crate::copy_source;
use crate::error::{from_store, from_upload, invalid_argument, malformed_xml, no_such_upload};
use crate::headers::{self, given_attributes};
use crate::lifecycle;
use crate::metadata_names::{CHECKSUM, INITIATOR, PART_CHECKSUMS, PARTS, UPLOAD};
use crate::ops::checksum_kind::{ChecksumKind, check_checksum_type};
use crate::ops::copy;
use crate::ops::listing::Encoding;
use crate::ops::lock;
use crate::ops::part_etags::{object_etag, part_checksums, part_etag};
use crate::ops::put;
use crate::pagination;
use crate::part_metadata;
use crate::version_lookup;

/// S3's minimum length of all parts but the last, in bytes.
const PART_BYTES_MIN: u64 = 5 << 20;
const PART_NUMBERS: std::ops::RangeInclusive<i32> = 1..=10_000;

pub(crate) async fn create(
    bucket: &Bucket,
    input: dto::CreateMultipartUploadInput,
    request_headers: &http::HeaderMap,
    initiator: Option<String>,
    now: store::Timestamp,
) -> S3Result<dto::CreateMultipartUploadOutput> {
    let key = key(&input.key)?;
    let algorithm = input.checksum_algorithm.as_ref().map(|algorithm| algorithm.as_str());
    let kind = ChecksumKind::of(algorithm, input.checksum_type.as_ref().map(|kind| kind.as_str()))?;
    let mut attributes = given_attributes!(input, request_headers)?;
    if let Some(kind) = kind {
        attributes.user.insert(CHECKSUM.to_owned(), kind.to_text());
    }
    attributes.user.extend(initiator.map(|initiator| (INITIATOR.to_owned(), initiator)));
    lock::apply_lock(bucket, &mut attributes, lock::lock_request!(input), now).await?;
    let tags = headers::tags_of_header(input.tagging.as_deref())?;
    let id = bucket.uploads()?.begin(&key, attributes, tags).await.map_err(from_store)?;
    Ok(dto::CreateMultipartUploadOutput {
        bucket: Some(bucket.name.clone()),
        key: Some(input.key),
        upload_id: Some(id),
        checksum_algorithm: kind.map(|kind| kind.algorithm.dto()),
        checksum_type: kind.map(ChecksumKind::checksum_type),
        ..Default::default()
    })
}

pub(crate) async fn upload_part(
    bucket: &Bucket,
    input: dto::UploadPartInput,
    request_headers: &http::HeaderMap,
    (trailer, admitted): (Option<Trailer>, Option<AdmittedClient>),
    with_md5: bool,
) -> S3Result<(dto::UploadPartOutput, Option<Checksum>)> {
    let (key, number) = (key(&input.key)?, part_number(input.part_number)?);
    let uploads = bucket.uploads()?;
    let upload = uploads.find(&key, &input.upload_id).await.map_err(from_upload)?;
    let algorithm = input.checksum_algorithm.as_ref().map(|algorithm| algorithm.as_str());
    let declared = put::declared(
        given_checksums!(input),
        algorithm,
        input.content_md5.clone(),
        request_headers,
        trailer,
    )?;
    let kind = ChecksumKind::of_upload(&upload);
    check_part_algorithm(kind, &declared)?;
    let announced = put::announced(input.content_length)?;
    let default = kind.map_or(Algorithm::Crc64Nvme, |kind| kind.algorithm);
    // The default algorithm is computed too, so that the object gets a checksum no matter which ones its parts have.
    let digests = Digests::begin(declared, Some(default))?.with_extra(default);
    let digests = if with_md5 { digests.with_md5() } else { digests };
    let reader = BodyReader::new(input.body, announced, digests, admitted);
    let (part, checksum) =
        body::pipe(reader, |body, note| uploads.put_part(&key, &input.upload_id, number, body, note)).await?;
    let etag = part_etag(&part, kind);
    let mut output = dto::UploadPartOutput { e_tag: Some(headers::etag(&etag)), ..Default::default() };
    show_checksum!(output, checksum);
    Ok((output, checksum))
}

/// Checks that a part's checksum is of the algorithm chosen for the upload, if one was chosen. For a composite checksum
/// each part must have one.
fn check_part_algorithm(kind: Option<ChecksumKind>, declared: &Declared) -> S3Result<()> {
    let named = declared.checksum.as_ref().map(|(algorithm, _)| *algorithm).or(declared.algorithm);
    match (kind, named) {
        (Some(kind), named) if named.map_or(kind.is_composite, |named| kind.algorithm != named) => {
            let (expected, actual) = (kind.algorithm.name(), named.map_or("null", Algorithm::name));
            Err(s3_error!(
                InvalidRequest,
                "Checksum Type mismatch occurred, expected checksum Type: {expected}, actual checksum Type: {actual}"
            ))
        }
        _ => Ok(()),
    }
}

pub(crate) async fn upload_part_copy(
    from: Bucket,
    bucket: &Bucket,
    input: dto::UploadPartCopyInput,
    admitted: Option<AdmittedClient>,
    with_md5: bool,
) -> S3Result<dto::UploadPartCopyOutput> {
    let (key, number) = (key(&input.key)?, part_number(input.part_number)?);
    let (_, source_key, source_version) = copy_source::parts(&input.copy_source)?;
    let uploads = bucket.uploads()?;
    let upload = uploads.find(&key, &input.upload_id).await.map_err(from_upload)?;
    let source =
        copy::find_source(from, &source_key, source_version, &copy::source_conditions!(input)).await?;
    let size = source.meta.size_bytes;
    let range = match &input.copy_source_range {
        None => 0..size,
        Some(text) => source_range(text, size)?,
    };
    let len = range.end - range.start;
    let options = GetOptions {
        if_match: Some(source.meta.object.etag.clone()),
        range: (!range.is_empty() && len < size).then_some(range),
        version: source.meta.object.version.clone(),
    };
    let object = source.bucket.store.get(&source_key, options).await.map_err(from_store)?;
    let kind = ChecksumKind::of_upload(&upload);
    let algorithm = kind.map_or(Algorithm::Crc64Nvme, |kind| kind.algorithm);
    let digests = Digests::begin(Declared::default(), Some(algorithm))?;
    let digests = if with_md5 { digests.with_md5() } else { digests };
    let reader = BodyReader::new(Some(body::object_body(object.body, len)), Some(len), digests, admitted);
    let (part, checksum) =
        body::pipe(reader, |body, note| uploads.put_part(&key, &input.upload_id, number, body, note)).await?;
    let mut result = dto::CopyPartResult {
        e_tag: Some(headers::etag(&part_etag(&part, kind))),
        last_modified: Some(headers::timestamp(part.last_modified)),
        ..Default::default()
    };
    if kind.is_some() {
        write_checksum!(result, checksum);
    }
    let copy_source_version_id = source.meta.object.version.map(String::from);
    Ok(dto::UploadPartCopyOutput {
        copy_part_result: Some(result),
        copy_source_version_id,
        ..Default::default()
    })
}

/// Parses `bytes=first-last`, which must lie within the source.
fn source_range(text: &str, size: u64) -> S3Result<std::ops::Range<u64>> {
    let invalid = || {
        let message = "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the zero-based offsets of the first and last bytes to copy";
        invalid_argument(message, "x-amz-copy-source-range", text)
    };
    let (first, last) =
        text.strip_prefix("bytes=").and_then(|range| range.split_once('-')).ok_or_else(invalid)?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(first) || !digits(last) {
        return Err(invalid());
    }
    let (first, last): (u64, u64) =
        (first.parse().map_err(|_| invalid())?, last.parse().map_err(|_| invalid())?);
    if first > last {
        return Err(invalid());
    }
    if last >= size {
        let message = format!("Range specified is not valid for source object of size: {size}");
        return Err(invalid_argument(&message, "x-amz-copy-source-range", &size.to_string()));
    }
    Ok(first..last + 1)
}

pub(crate) async fn complete(
    bucket: &Bucket,
    input: dto::CompleteMultipartUploadInput,
    request_headers: &http::HeaderMap,
) -> S3Result<dto::CompleteMultipartUploadOutput> {
    let key = key(&input.key)?;
    let uploads = bucket.uploads()?;
    let upload = match uploads.find(&key, &input.upload_id).await {
        Err(StoreError::NotFound(_)) => return find_completed(bucket, &key, &input).await,
        found => found.map_err(from_store)?,
    };
    if let Some(size) = input.mpu_object_size.filter(|size| *size < 0) {
        return Err(s3_error!(
            InvalidRequest,
            "Value for x-amz-mp-object-size header is less than zero: '{size}'"
        ));
    }
    let stored_parts = uploads.parts(&key, &input.upload_id).await.map_err(from_upload)?;
    let given = single_object_checksum(checksums::with_headers(given_checksums!(input), request_headers))?;
    let chosen = input.multipart_upload.and_then(|list| list.parts).unwrap_or_default();
    let kind = ChecksumKind::of_upload(&upload);
    check_checksum_type(kind, input.checksum_type.as_ref())?;
    let parts = select_parts(&chosen, &stored_parts, kind)?;
    let size_bytes = parts.iter().map(|part| part.size_bytes).sum::<u64>();
    if input.mpu_object_size.is_some_and(|size| u64::try_from(size) != Ok(size_bytes)) {
        let given = input.mpu_object_size.unwrap_or_default();
        return Err(s3_error!(
            InvalidRequest,
            "The provided 'x-amz-mp-object-size' header value {given} does not match what was computed: {size_bytes}"
        ));
    }
    let checksum = object_checksum(kind, &parts);
    if let Some((algorithm, given)) = given {
        check_object_checksum(algorithm, &given, kind, checksum.as_ref())?;
    }
    let sizes: Vec<u64> = parts.iter().map(|part| part.size_bytes).collect();
    let mut user = BTreeMap::from([(UPLOAD.to_owned(), input.upload_id.clone())]);
    user.extend(checksum.as_ref().map(|checksum| (CHECKSUM.to_owned(), checksum.to_text())));
    user.extend(part_metadata::sizes_to_text(&sizes).map(|text| (PARTS.to_owned(), text)));
    if let Some(text) = part_checksums(kind, &parts)
        && part_metadata::has_room([&upload.attributes.user, &user], PART_CHECKSUMS, &text)
    {
        user.insert(PART_CHECKSUMS.to_owned(), text);
    }
    let precondition = conditions::write_precondition(input.if_match.as_ref(), input.if_none_match.as_ref())?;
    let numbers: Vec<u32> = parts.iter().map(|part| part.number).collect();
    let etags = parts.iter().map(|part| part.etag.clone()).collect();
    let etag = Some(object_etag(&input.upload_id, &parts));
    let options = CompleteOptions { user, etags, etag, precondition };
    let object = match uploads.complete(&key, &input.upload_id, &numbers, options).await {
        Ok(object) => object,
        Err(error) => {
            let (error, wanted) = (from_upload(error), input.if_match.as_ref());
            return Err(conditions::refine_failure(error, wanted, bucket, &key).await);
        }
    };
    let expiration = lifecycle::expiration_header_of_stored(bucket, &object).await;
    let output = completed_output(bucket, input.key, &object, checksum.as_ref());
    Ok(dto::CompleteMultipartUploadOutput { expiration, ..output })
}

/// Handles a repeated completion, by a client that did not get the first response. The object's metadata has the id of
/// its upload.
async fn find_completed(
    bucket: &Bucket,
    key: &ObjectKey,
    input: &dto::CompleteMultipartUploadInput,
) -> S3Result<dto::CompleteMultipartUploadOutput> {
    let found = bucket.store.find(key).await.map_err(from_store)?;
    let of_this = found.filter(|meta| meta.attributes.user.get(UPLOAD) == Some(&input.upload_id));
    let meta = of_this.ok_or_else(no_such_upload)?;
    Ok(completed_output(bucket, input.key.clone(), &meta.object, Checksum::of_object(&meta).as_ref()))
}

fn completed_output(
    bucket: &Bucket,
    key: String,
    object: &ObjectRef,
    checksum: Option<&Checksum>,
) -> dto::CompleteMultipartUploadOutput {
    let mut output = dto::CompleteMultipartUploadOutput {
        bucket: Some(bucket.name.clone()),
        key: Some(key),
        e_tag: Some(headers::etag(&object.etag)),
        version_id: version_lookup::written_version(object),
        checksum_type: checksum.map(Checksum::kind),
        ..Default::default()
    };
    write_checksum!(output, checksum);
    output
}

/// Returns the parts that the client lists in its completion. Fails if one is missing or differs, if they are not in
/// ascending order, or if one but the last is too small.
fn select_parts(
    chosen: &[CompletedPart],
    stored_parts: &[Part],
    kind: Option<ChecksumKind>,
) -> S3Result<Vec<Part>> {
    if chosen.is_empty() {
        return Err(malformed_xml());
    }
    let by_number: BTreeMap<u32, &Part> = stored_parts.iter().map(|part| (part.number, part)).collect();
    let mut parts = Vec::with_capacity(chosen.len());
    let mut last = 0;
    for named in chosen {
        let given = named.part_number.ok_or_else(malformed_xml)?;
        if given < 1 {
            return Err(invalid_argument("PartNumber must be >= 1", "PartNumber", &given.to_string()));
        }
        let at = u32::try_from(given).unwrap_or(u32::MAX);
        if at <= last {
            return Err(s3_error!(
                InvalidPartOrder,
                "The list of parts was not in ascending order. Parts must be ordered by part number."
            ));
        }
        last = at;
        let etag = named.e_tag.as_ref().ok_or_else(malformed_xml)?;
        // Uploads begun before etags were derived from checksums are completed with the store's etags.
        let wanted = store::ETag::new(etag.value());
        let is_wanted = |part: &&&Part| part_etag(part, kind) == wanted || part.etag == wanted;
        let part = by_number.get(&at).filter(is_wanted);
        let part = part.ok_or_else(invalid_part)?;
        check_part_checksum(named, part, kind)?;
        parts.push((*part).clone());
    }
    let (_, all_but_last) = parts.split_last().ok_or_else(malformed_xml)?;
    if all_but_last.iter().any(|part| part.size_bytes < PART_BYTES_MIN) {
        return Err(s3_error!(
            EntityTooSmall,
            "Your proposed upload is smaller than the minimum allowed size"
        ));
    }
    Ok(parts)
}

fn check_part_checksum(named: &CompletedPart, part: &Part, kind: Option<ChecksumKind>) -> S3Result<()> {
    let stored = part.note.as_deref().and_then(Checksum::from_text);
    let given = checksums::decode_carried(given_checksums!(named));
    let values = given.iter().filter_map(|(algorithm, value)| Some((algorithm.name(), value.as_deref()?)));
    let shown: Vec<(&str, &str)> = values.collect();
    let given = checksums::single_checksum(given.clone()).map_err(|_| {
        let shown = match shown.as_slice() {
            [(_, value)] => (*value).to_owned(),
            several => several.iter().map(|(name, value)| format!("{name}:{value};")).collect(),
        };
        invalid_argument("Invalid Base64 or multiple checksums present in request", "Checksum", &shown)
    })?;
    match (given, kind) {
        (Some((algorithm, value)), _) => {
            let known = stored.as_ref().and_then(|stored| stored.find(algorithm));
            let is_same = known.is_some_and(|known| known.value == value);
            if is_same {
                return Ok(());
            }
            match kind {
                Some(kind) if kind.algorithm != algorithm => {
                    let (number, name) = (part.number, algorithm.name().to_ascii_lowercase());
                    Err(s3_error!(
                        BadDigest,
                        "The {name} you specified for part {number} did not match what we received."
                    ))
                }
                _ => Err(invalid_part()),
            }
        }
        (None, Some(kind)) if kind.is_composite => {
            let name = kind.algorithm.name().to_ascii_lowercase();
            Err(s3_error!(
                InvalidRequest,
                "The upload was created using a {name} checksum. The complete request must include the checksum for each part. It was missing for part {} in the request.",
                part.number
            ))
        }
        _ => Ok(()),
    }
}

/// Returns the checksum of the whole object that the client gives. A composite one may end in the number of parts.
fn single_object_checksum(given: checksums::ChecksumFields) -> S3Result<Option<(Algorithm, String)>> {
    let mut plain = Vec::with_capacity(given.len());
    for (algorithm, value) in given {
        let digest = match value.as_deref().and_then(|value| value.split_once('-')) {
            Some((_, count)) if count.is_empty() || !count.bytes().all(|byte| byte.is_ascii_digit()) => {
                return Err(checksums::invalid_checksum(algorithm));
            }
            Some((digest, _)) => Some(digest.to_owned()),
            None => value,
        };
        plain.push((algorithm, digest));
    }
    checksums::single_checksum(plain)
}

fn check_object_checksum(
    algorithm: Algorithm,
    given: &str,
    kind: Option<ChecksumKind>,
    computed: Option<&Checksum>,
) -> S3Result<()> {
    if let Some(kind) = kind
        && kind.algorithm != algorithm
    {
        return Err(s3_error!(
            InvalidRequest,
            "The upload was created using the {} checksum algorithm; the request gives {}.",
            kind.algorithm.name(),
            algorithm.name()
        ));
    }
    let digest = computed
        .filter(|computed| computed.algorithm == algorithm)
        .map(|computed| computed.value.split('-').next().unwrap_or_default().to_owned());
    if digest.is_some_and(|digest| digest != given) {
        let name = algorithm.name();
        return Err(s3_error!(BadDigest, "The {name} you specified did not match the calculated checksum."));
    }
    Ok(())
}

/// Computes the object's checksum from those of its parts; CRC64NVME of the whole object by default. `None` if a part
/// has no checksum of the algorithm.
fn object_checksum(kind: Option<ChecksumKind>, parts: &[Part]) -> Option<Checksum> {
    let kind = kind.unwrap_or(ChecksumKind { algorithm: Algorithm::Crc64Nvme, is_composite: false });
    let noted = parts.iter().map(|part| {
        let checksum = Checksum::from_text(part.note.as_deref()?)?;
        Some((checksum.find(kind.algorithm)?.clone(), part.size_bytes))
    });
    let noted: Vec<(Checksum, u64)> = noted.collect::<Option<_>>()?;
    if kind.is_composite {
        Checksum::composite(kind.algorithm, noted.iter().map(|(checksum, _)| checksum))
    } else {
        Checksum::concatenated(kind.algorithm, &noted)
    }
}

/// Returns whether the user began the upload, if it exists.
pub(crate) async fn is_initiator(bucket: &Bucket, name: &str, id: &str, user: &str) -> S3Result<bool> {
    match bucket.uploads()?.find(&key(name)?, id).await {
        Ok(upload) => Ok(upload.attributes.user.get(INITIATOR).is_some_and(|initiator| initiator == user)),
        Err(store::StoreError::NotFound(_)) => Ok(false),
        Err(error) => Err(from_upload(error)),
    }
}

pub(crate) async fn abort(bucket: &Bucket, input: &dto::AbortMultipartUploadInput) -> S3Result<()> {
    let key = key(&input.key)?;
    let uploads = bucket.uploads()?;
    if let Some(wanted) = &input.if_match_initiated_time {
        let upload = uploads.find(&key, &input.upload_id).await.map_err(from_upload)?;
        // Only a time before the upload began fails the condition (S3 API, AbortMultipartUpload); later times are
        // accepted.
        if headers::secs(wanted) < upload.began.secs() {
            return Err(crate::error::precondition_failed());
        }
    }
    uploads.abort(&key, &input.upload_id).await.map_err(from_upload)
}

pub(crate) async fn list_parts(
    bucket: &Bucket,
    owner: &dto::Owner,
    input: dto::ListPartsInput,
) -> S3Result<dto::ListPartsOutput> {
    let key = key(&input.key)?;
    let uploads = bucket.uploads()?;
    let limit = pagination::limit(input.max_parts, "max-parts")?;
    let after = match input.part_number_marker {
        None => 0,
        Some(marker) => u32::try_from(marker).map_err(|_| {
            let message = format!("Argument {marker} must be an integer between 0 and 2147483647");
            invalid_argument(&message, "part-number-marker", &marker.to_string())
        })?,
    };
    let upload = uploads.find(&key, &input.upload_id).await.map_err(from_upload)?;
    let stored_parts = uploads.parts(&key, &input.upload_id).await.map_err(from_upload)?;
    let mut rest = stored_parts.into_iter().filter(|part| part.number > after);
    let page: Vec<Part> = rest.by_ref().take(limit).collect();
    let is_truncated = limit > 0 && rest.next().is_some();
    let kind = ChecksumKind::of_upload(&upload);
    let shown = page.iter().map(|part| {
        let mut shown = dto::Part {
            part_number: i32::try_from(part.number).ok(),
            e_tag: Some(headers::etag(&part_etag(part, kind))),
            size: i64::try_from(part.size_bytes).ok(),
            last_modified: Some(headers::timestamp(part.last_modified)),
            ..Default::default()
        };
        let checksum = part.note.as_deref().and_then(Checksum::from_text);
        let checksum = checksum.filter(|found| kind.is_none_or(|kind| kind.algorithm == found.algorithm));
        write_checksum!(shown, checksum);
        shown
    });
    let next = page.last().map_or(after, |part| part.number);
    Ok(dto::ListPartsOutput {
        bucket: Some(bucket.name.clone()),
        key: Some(input.key),
        upload_id: Some(input.upload_id),
        parts: Some(shown.collect()),
        is_truncated: Some(is_truncated),
        max_parts: i32::try_from(limit).ok(),
        part_number_marker: i32::try_from(after).ok(),
        next_part_number_marker: i32::try_from(next).ok(),
        owner: Some(owner.clone()),
        initiator: Some(dto::Initiator { id: owner.id.clone(), display_name: owner.display_name.clone() }),
        storage_class: Some(headers::storage_class(&upload.attributes).into()),
        checksum_algorithm: kind.map(|kind| kind.algorithm.dto()),
        checksum_type: kind.map(ChecksumKind::checksum_type),
        ..Default::default()
    })
}

pub(crate) async fn list_uploads(
    bucket: &Bucket,
    owner: &dto::Owner,
    input: dto::ListMultipartUploadsInput,
) -> S3Result<dto::ListMultipartUploadsOutput> {
    let encoding = Encoding::of(input.encoding_type.as_ref())?;
    let limit = pagination::limit(input.max_uploads, "max-uploads")?;
    let prefix = input.prefix.clone().unwrap_or_default();
    let uploads = bucket.uploads()?.list(prefix.as_bytes()).await.map_err(from_store)?;
    let uploads = after_markers(uploads, input.key_marker.as_deref(), input.upload_id_marker.as_deref())?;
    let delimiter = input.delimiter.clone().filter(|delimiter| !delimiter.is_empty());
    let (mut shown, mut prefixes) = (Vec::new(), BTreeSet::new());
    let (mut is_truncated, mut last) = (false, None);
    let marker = input.key_marker.clone().unwrap_or_default();
    for upload in uploads {
        let text = upload.key.as_bytes();
        let folded = delimiter.as_ref().and_then(|delimiter| {
            let rest = &text[prefix.len()..];
            let at = rest.windows(delimiter.len()).position(|window| window == delimiter.as_bytes())?;
            Some(text[..prefix.len() + at + delimiter.len()].to_vec())
        });
        let is_before = |folded: &Vec<u8>| !marker.is_empty() && folded.as_slice() <= marker.as_bytes();
        if folded.as_ref().is_some_and(|folded| prefixes.contains(folded) || is_before(folded)) {
            continue;
        }
        if shown.len() + prefixes.len() == limit {
            is_truncated = limit > 0;
            break;
        }
        last = Some(match &folded {
            Some(folded) => (folded.clone(), None),
            None => (text.to_vec(), Some(upload.id.clone())),
        });
        match folded {
            Some(folded) => drop(prefixes.insert(folded)),
            None => shown.push(upload_to_dto(&upload, encoding, owner)),
        }
    }
    let next = last.filter(|_| is_truncated);
    let prefixes = prefixes.iter().map(|text| dto::CommonPrefix { prefix: Some(encoding.text(text)) });
    let prefixes: Vec<dto::CommonPrefix> = prefixes.collect();
    Ok(dto::ListMultipartUploadsOutput {
        bucket: Some(bucket.name.clone()),
        common_prefixes: (!prefixes.is_empty()).then_some(prefixes),
        uploads: (!shown.is_empty()).then_some(shown),
        delimiter,
        encoding_type: input.encoding_type,
        is_truncated: Some(is_truncated),
        key_marker: Some(input.key_marker.unwrap_or_default()),
        upload_id_marker: Some(input.upload_id_marker.unwrap_or_default()),
        max_uploads: i32::try_from(limit).ok(),
        next_key_marker: next.as_ref().map(|(text, _)| encoding.text(text)),
        next_upload_id_marker: next.and_then(|(_, id)| id),
        prefix: Some(encoding.text(prefix.as_bytes())),
        ..Default::default()
    })
}

fn upload_to_dto(upload: &Upload, encoding: Encoding, owner: &dto::Owner) -> dto::MultipartUpload {
    let kind = ChecksumKind::of_upload(upload);
    dto::MultipartUpload {
        key: Some(encoding.text(upload.key.as_bytes())),
        upload_id: Some(upload.id.clone()),
        initiated: Some(headers::timestamp(upload.began)),
        owner: Some(owner.clone()),
        initiator: Some(dto::Initiator { id: owner.id.clone(), display_name: owner.display_name.clone() }),
        storage_class: Some(headers::storage_class(&upload.attributes).into()),
        checksum_algorithm: kind.map(|kind| kind.algorithm.dto()),
        checksum_type: kind.map(ChecksumKind::checksum_type),
    }
}

/// Returns the uploads after a key marker, or after an upload id marker of that key. If the marker's upload has ended
/// in the meantime, all remaining uploads of the key are listed. The id of another key's upload is refused.
fn after_markers(uploads: Vec<Upload>, key: Option<&str>, id: Option<&str>) -> S3Result<Vec<Upload>> {
    let (Some(key), id) = (key.filter(|key| !key.is_empty()), id.filter(|id| !id.is_empty())) else {
        return Ok(uploads);
    };
    let Some(id) = id else {
        return Ok(uploads.into_iter().filter(|upload| upload.key.as_bytes() > key.as_bytes()).collect());
    };
    if uploads.iter().all(|upload| upload.key.as_bytes() != key.as_bytes()) {
        return Ok(uploads.into_iter().filter(|upload| upload.key.as_bytes() > key.as_bytes()).collect());
    }
    let at = uploads.iter().position(|upload| upload.id == id && upload.key.as_bytes() == key.as_bytes());
    match at {
        Some(at) => Ok(uploads.into_iter().skip(at + 1).collect()),
        None if is_upload_id(id) && uploads.iter().all(|upload| upload.id != id) => {
            Ok(uploads.into_iter().filter(|upload| upload.key.as_bytes() >= key.as_bytes()).collect())
        }
        None => Err(invalid_argument("Invalid uploadId marker", "upload-id-marker", id)),
    }
}

/// Returns whether a text can be an upload id of some store: at least 16 hexadecimal digits.
fn is_upload_id(text: &str) -> bool {
    text.len() >= 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

pub(crate) fn part_number(number: i32) -> S3Result<u32> {
    let valid = u32::try_from(number).ok().filter(|_| PART_NUMBERS.contains(&number));
    valid.ok_or_else(|| {
        let message = "Part number must be an integer between 1 and 10000, inclusive.";
        invalid_argument(message, "partNumber", &number.to_string())
    })
}

fn invalid_part() -> S3Error {
    s3_error!(
        InvalidPart,
        "One or more of the specified parts could not be found.  The part may not have been uploaded, or the specified entity tag may not match the part's entity tag."
    )
}
