//! GetObject, HeadObject, GetObjectAttributes.

use http::{HeaderMap, HeaderValue};
use s3s::dto::{self, GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectInput, GetObjectOutput};
use s3s::dto::{HeadObjectInput, HeadObjectOutput};
use s3s::{S3Error, S3Result, s3_error};
use std::ops::Range;
use store::{GetOptions, ObjectMeta, StoreError};

use crate::body;
use crate::bucket::{Bucket, key};
use crate::checksums::{Checksum, add_checksum_header, show_checksum, write_checksum};
use crate::conditions::{Conditions, ETagLists};
use crate::error::{custom, from_store, invalid_argument};
use crate::error_document::with_details;
use crate::headers::{self, show_attributes};
use crate::lifecycle;
use crate::metadata_names::{PART_CHECKSUMS, PARTS};
use crate::ops::{copy, multipart, tagging};
use crate::pagination;
use crate::part_metadata;
use crate::version_lookup;

/// The maximum length of a part that is read to compute its checksum, if the checksum is not kept with the object.
const COMPUTED_BYTES_MAX: u64 = 64 << 20;

/// The bytes of an object that a request asks for.
enum RequestedRange {
    All,
    Range(Range<u64>),
    Part(RequestedPart),
}

/// One part of an object.
struct RequestedPart {
    range: Range<u64>,
    /// The part's index, from 0.
    index: usize,
    /// The number of parts of the object.
    count: usize,
}

impl RequestedRange {
    fn range(&self) -> Option<&Range<u64>> {
        match self {
            Self::All => None,
            Self::Range(range) | Self::Part(RequestedPart { range, .. }) => Some(range),
        }
    }

    /// Returns the number of the object's parts, if the request asks for one of them.
    fn parts_count(&self) -> Option<i32> {
        match self {
            Self::Part(part) => i32::try_from(part.count).ok(),
            _ => None,
        }
    }
}

macro_rules! conditions {
    ($input:expr, $lists:expr) => {
        Conditions {
            lists: $lists,
            if_match: $input.if_match.clone(),
            if_none_match: $input.if_none_match.clone(),
            if_modified_since: $input.if_modified_since.clone(),
            if_unmodified_since: $input.if_unmodified_since.clone(),
        }
    };
}

/// Sets the fields that the outputs of GET and HEAD share.
macro_rules! show {
    ($output:expr, $meta:expr, $requested:expr, $checksum:expr) => {{
        let (meta, requested): (&ObjectMeta, &RequestedRange) = ($meta, $requested);
        show_attributes!($output, &meta.attributes);
        $output.accept_ranges = Some("bytes".to_owned());
        $output.e_tag = Some(headers::etag(&meta.object.etag));
        $output.last_modified = meta.object.last_modified.map(headers::timestamp);
        $output.version_id = meta.object.version.as_deref().map(str::to_owned);
        $output.content_length = Some(length(meta, requested));
        $output.content_range = content_range(meta, requested);
        $output.parts_count = requested.parts_count();
        let checksum: &Option<Checksum> = $checksum;
        $output.checksum_type = checksum.as_ref().map(Checksum::kind);
        show_checksum!($output, checksum);
    }};
}

/// The output of GET or HEAD, and response headers that it has no field for.
pub(crate) struct ReadOutput<T> {
    pub(crate) output: T,
    pub(crate) headers: HeaderMap,
}

impl<T> ReadOutput<T> {
    fn new(output: T, meta: &ObjectMeta, checksum: Option<&Checksum>) -> Self {
        let mut headers = HeaderMap::new();
        add_checksum_header(&mut headers, checksum);
        headers::show_expires(&mut headers, &meta.attributes);
        Self { output, headers }
    }
}

pub(crate) async fn get(
    bucket: Bucket,
    input: GetObjectInput,
    lists: ETagLists,
) -> S3Result<ReadOutput<GetObjectOutput>> {
    let key = key(&input.key)?;
    let conditions = conditions!(input, lists);
    let id = input.version_id.as_deref().filter(|id| !id.is_empty());
    input.part_number.map(multipart::part_number).transpose()?;
    // If the range depends on the object's length, read the metadata first; the etag condition then pins the object.
    let needs_head =
        id.is_some() || input.part_number.is_some() || matches!(input.range, Some(dto::Range::Suffix { .. }));
    let mut options = GetOptions::default();
    if needs_head {
        let meta = version_lookup::head(&bucket, &key, id).await?;
        conditions.check(&meta)?;
        options.range = requested_range(&meta, input.range.as_ref(), input.part_number)?.range().cloned();
        options.if_match = Some(meta.object.etag);
        options.version = meta.object.version;
    } else if let Some(dto::Range::Int { first, last }) = input.range {
        options.range = Some(first..last.map_or(u64::MAX, |last| last.saturating_add(1)));
    }
    let is_empty_range = options.range.as_ref().is_some_and(Range::is_empty);
    if is_empty_range {
        options.range = None;
    }
    let object = match bucket.store.get(&key, options).await {
        Err(StoreError::NotFound(_)) => return Err(version_lookup::not_found_error(&bucket, &key).await),
        Err(StoreError::InvalidRange(_)) => {
            let meta = version_lookup::head(&bucket, &key, id).await?;
            return Err(range_not_satisfiable(&meta, input.range.as_ref()));
        }
        object => object.map_err(from_store)?,
    };
    let meta = &object.meta;
    conditions.check(meta)?;
    let requested = requested_range(meta, input.range.as_ref(), input.part_number)?;
    let checksum = requested_checksum(&bucket, meta, &requested, input.checksum_mode.is_some()).await?;
    let mut output = GetObjectOutput::default();
    show!(output, meta, &requested, &checksum);
    output.tag_count = tag_count(&bucket, meta).await;
    if id.is_none() {
        output.expiration = lifecycle::expiration_header(&bucket, meta).await;
    }
    let len = requested.range().map_or(meta.size_bytes, |range| range.end - range.start);
    output.body = (!is_empty_range).then(|| body::object_body(object.body, len));
    Ok(ReadOutput::new(output, meta, checksum.as_ref()))
}

pub(crate) async fn head(
    bucket: Bucket,
    input: HeadObjectInput,
    lists: ETagLists,
) -> S3Result<ReadOutput<HeadObjectOutput>> {
    let key = key(&input.key)?;
    input.part_number.map(multipart::part_number).transpose()?;
    let id = input.version_id.as_deref().filter(|id| !id.is_empty());
    let meta = version_lookup::head(&bucket, &key, id).await?;
    conditions!(input, lists).check(&meta)?;
    let requested = requested_range(&meta, input.range.as_ref(), input.part_number)?;
    let checksum = requested_checksum(&bucket, &meta, &requested, input.checksum_mode.is_some()).await?;
    let mut output = HeadObjectOutput::default();
    show!(output, &meta, &requested, &checksum);
    if id.is_none() {
        output.expiration = lifecycle::expiration_header(&bucket, &meta).await;
    }
    if let Some(given) = input.response_content_type {
        output.content_type = Some(given);
    }
    output.cache_control = input.response_cache_control.or(output.cache_control);
    output.content_disposition = input.response_content_disposition.or(output.content_disposition);
    output.content_encoding = input.response_content_encoding.or(output.content_encoding);
    output.content_language = input.response_content_language.or(output.content_language);
    let mut shown = ReadOutput::new(output, &meta, checksum.as_ref());
    if let Some(count) = tag_count(&bucket, &meta).await {
        shown.headers.insert("x-amz-tagging-count", HeaderValue::from(count));
    }
    Ok(shown)
}

pub(crate) async fn attributes(
    bucket: Bucket,
    input: GetObjectAttributesInput,
) -> S3Result<GetObjectAttributesOutput> {
    let key = key(&input.key)?;
    // Clients send a list in one header, or one header per attribute.
    let given = input.object_attributes.iter().flat_map(|list| list.as_str().split(','));
    let given: Vec<&str> = given.map(str::trim).filter(|name| !name.is_empty()).collect();
    let is_requested = |name: &str| given.contains(&name);
    let known = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"];
    if given.is_empty() {
        return Err(s3_error!(
            InvalidRequest,
            "The x-amz-object-attributes header specifying the attributes to be retrieved is either missing or empty"
        ));
    }
    if let Some(unknown) = given.iter().find(|name| !known.contains(name)) {
        let message = "Invalid attribute name specified.";
        return Err(invalid_argument(message, "x-amz-object-attributes", unknown));
    }
    let id = input.version_id.as_deref().filter(|id| !id.is_empty());
    let meta = version_lookup::head(&bucket, &key, id).await?;
    let mut output = GetObjectAttributesOutput {
        last_modified: meta.object.last_modified.map(headers::timestamp),
        version_id: meta.object.version.as_deref().map(str::to_owned),
        ..Default::default()
    };
    if is_requested("ETag") {
        output.e_tag = Some(headers::etag(&meta.object.etag));
    }
    if is_requested("ObjectSize") {
        output.object_size = i64::try_from(meta.size_bytes).ok();
    }
    if is_requested("StorageClass") {
        output.storage_class = Some(headers::storage_class(&meta.attributes).into());
    }
    let checksum = Checksum::of_object(&meta);
    if is_requested("Checksum")
        && let Some(found) = &checksum
    {
        let mut shown = dto::Checksum { checksum_type: Some(found.kind()), ..Default::default() };
        write_checksum!(shown, checksum);
        output.checksum = Some(shown);
    }
    if is_requested("ObjectParts")
        && let Some(sizes) = part_sizes(&meta)
    {
        let checksums = part_checksums(&meta, sizes.len());
        output.object_parts =
            Some(object_parts(&sizes, checksums, input.part_number_marker, input.max_parts)?);
    }
    Ok(output)
}

fn object_parts(
    sizes: &[u64],
    checksums: Option<Vec<Checksum>>,
    marker: Option<i32>,
    max: Option<i32>,
) -> S3Result<dto::GetObjectAttributesParts> {
    let after = usize::try_from(marker.unwrap_or(0)).map_err(|_| {
        s3_error!(InvalidArgument, "Argument part-number-marker must be an integer between 0 and 2147483647")
    })?;
    let limit = pagination::limit(max, "max-parts")?;
    let shown = sizes.iter().enumerate().skip(after).take(limit);
    let parts: Vec<dto::ObjectPart> = shown
        .map(|(at, size)| {
            let mut part = dto::ObjectPart {
                part_number: i32::try_from(at + 1).ok(),
                size: i64::try_from(*size).ok(),
                ..Default::default()
            };
            let checksum = checksums.as_ref().and_then(|checksums| checksums.get(at));
            write_checksum!(part, checksum);
            part
        })
        .collect();
    let end = after + parts.len();
    Ok(dto::GetObjectAttributesParts {
        is_truncated: Some(end < sizes.len()),
        max_parts: i32::try_from(limit).ok(),
        next_part_number_marker: i32::try_from(end).ok(),
        part_number_marker: i32::try_from(after).ok(),
        total_parts_count: i32::try_from(sizes.len()).ok(),
        parts: Some(parts),
    })
}

/// Returns the checksum of the object, or of the requested part, if the client asks for it. `None` if the object has no
/// checksum, for a range, and for a long part whose checksum is not kept. Clients compare the checksum with the bytes
/// that they read.
async fn requested_checksum(
    bucket: &Bucket,
    meta: &ObjectMeta,
    requested: &RequestedRange,
    is_requested: bool,
) -> S3Result<Option<Checksum>> {
    let Some(whole) = Checksum::of_object(meta).filter(|_| is_requested) else { return Ok(None) };
    let part = match requested {
        RequestedRange::All => return Ok(Some(whole)),
        RequestedRange::Range(_) => return Ok(None),
        RequestedRange::Part(part) => part,
    };
    let kept = part_checksums(meta, part.count)
        .and_then(|mut kept| (part.index < kept.len()).then(|| kept.swap_remove(part.index)));
    let of_part = match kept {
        Some(kept) => Some(kept),
        None if part.range == (0..meta.size_bytes) && !whole.is_composite => Some(whole.clone()),
        None if part.range.end - part.range.start > COMPUTED_BYTES_MAX => None,
        None => Some(copy::compute_checksum(bucket, meta, Some(part.range.clone()), whole.algorithm).await?),
    };
    Ok(of_part.map(|of_part| Checksum { is_composite: whole.is_composite, ..of_part }))
}

/// Returns the checksums of an object's parts, if those of so many parts are kept with it.
fn part_checksums(meta: &ObjectMeta, parts: usize) -> Option<Vec<Checksum>> {
    part_metadata::checksums_from_text(meta.attributes.user.get(PART_CHECKSUMS)?, parts)
}

fn part_sizes(meta: &ObjectMeta) -> Option<Vec<u64>> {
    let sizes = part_metadata::sizes_from_text(meta.attributes.user.get(PARTS)?)?;
    (sizes.iter().sum::<u64>() == meta.size_bytes).then_some(sizes)
}

fn requested_range(
    meta: &ObjectMeta,
    range: Option<&dto::Range>,
    part: Option<i32>,
) -> S3Result<RequestedRange> {
    match (range, part) {
        (None, None) => Ok(RequestedRange::All),
        (Some(range), None) => range
            .check(meta.size_bytes)
            .map(RequestedRange::Range)
            .map_err(|_| range_not_satisfiable(meta, Some(range))),
        (None, Some(number)) => part_range(meta, number),
        (Some(_), Some(_)) => {
            Err(s3_error!(InvalidRequest, "Cannot specify both Range header and partNumber query parameter"))
        }
    }
}

fn part_range(meta: &ObjectMeta, number: i32) -> S3Result<RequestedRange> {
    let at = usize::try_from(number).unwrap_or(0).saturating_sub(1);
    let Some(sizes) = part_sizes(meta) else {
        // An object stored by a single PUT counts as its own first part.
        if at > 0 {
            return Err(no_such_part(number, 1));
        }
        return Ok(if meta.size_bytes == 0 {
            RequestedRange::All
        } else {
            RequestedRange::Range(0..meta.size_bytes)
        });
    };
    let size = *sizes.get(at).ok_or_else(|| no_such_part(number, sizes.len()))?;
    let start = sizes[..at].iter().sum();
    Ok(RequestedRange::Part(RequestedPart { range: start..start + size, index: at, count: sizes.len() }))
}

fn no_such_part(number: i32, count: usize) -> S3Error {
    let status = http::StatusCode::RANGE_NOT_SATISFIABLE;
    let error = custom("InvalidPartNumber", status, "The requested partnumber is not satisfiable.");
    let (number, count) = (number.to_string(), count.to_string());
    with_details(error, &[("ActualPartCount", &count), ("PartNumberRequested", &number)])
}

fn range_not_satisfiable(meta: &ObjectMeta, asked: Option<&dto::Range>) -> S3Error {
    let error = s3_error!(InvalidRange, "The requested range is not satisfiable");
    let (asked, size) = (asked.map(dto::Range::to_header_string), meta.size_bytes.to_string());
    let asked = asked.unwrap_or_default();
    let mut error = with_details(error, &[("RangeRequested", &asked), ("ActualObjectSize", &size)]);
    let mut headers = error.headers().cloned().unwrap_or_default();
    if let Ok(value) = format!("bytes */{}", meta.size_bytes).parse() {
        headers.insert(http::header::CONTENT_RANGE, value);
    }
    error.set_headers(headers);
    error
}

/// Returns the length of the requested range.
fn length(meta: &ObjectMeta, requested: &RequestedRange) -> i64 {
    let len = requested.range().map_or(meta.size_bytes, |range| range.end - range.start);
    i64::try_from(len).unwrap_or(i64::MAX)
}

fn content_range(meta: &ObjectMeta, requested: &RequestedRange) -> Option<String> {
    let range = requested.range().filter(|range| !range.is_empty())?;
    Some(format!("bytes {}-{}/{}", range.start, range.end - 1, meta.size_bytes))
}

async fn tag_count(bucket: &Bucket, meta: &ObjectMeta) -> Option<i32> {
    let count = match meta.tag_count {
        Some(count) => count as usize,
        None => tagging::read(bucket, &meta.object).await.ok()?.len(),
    };
    i32::try_from(count).ok().filter(|count| *count > 0)
}
