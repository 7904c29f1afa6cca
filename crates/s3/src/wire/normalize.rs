//! Normalization of headers: clients write some headers in more ways than `s3s` parses.

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use s3s::dto::{Range, Timestamp, TimestampFormat};
use s3s::{S3Error, S3Result, s3_error};

use super::framing;
use crate::checksums::Algorithm;
use crate::conditions::ETagLists;
use crate::error::{custom, invalid_argument};
use crate::error_document::with_details;
use crate::headers::{self, EXPIRES};
use crate::query::Query;

/// The maximum length of all headers, in bytes (S3 User Guide, "Working with object metadata": 8 KB).
const HEADERS_BYTES_MAX: usize = 8 << 10;

const ETAGS: [HeaderName; 4] = [
    http::header::IF_MATCH,
    http::header::IF_NONE_MATCH,
    HeaderName::from_static("x-amz-copy-source-if-match"),
    HeaderName::from_static("x-amz-copy-source-if-none-match"),
];

/// Query parameters that must be integers.
const NUMBERS: [&str; 4] = ["max-keys", "max-parts", "max-uploads", "part-number-marker"];

/// Refuses, before authentication, headers that are too long, and a chunked body without its decoded length.
pub(crate) fn check_head(head: &Parts) -> S3Result<()> {
    let bytes: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes > HEADERS_BYTES_MAX {
        let message = "Your request header section exceeds the maximum allowed size.";
        let error = custom("RequestHeaderSectionTooLarge", http::StatusCode::BAD_REQUEST, message);
        return Err(with_details(error, &[("MaxSizeAllowed", &HEADERS_BYTES_MAX.to_string())]));
    }
    framing::check(&head.headers)
}

/// Checks the headers and rewrites them to the form that `s3s` parses.
pub(super) fn normalize(head: &mut Parts) -> S3Result<()> {
    check_numbers(&Query::of(&head.uri))?;
    check_checksums(&head.headers)?;
    let headers = &mut head.headers;
    check_retention(headers)?;
    if headers.get("content-md5").is_some_and(HeaderValue::is_empty) {
        return Err(crate::checksums::invalid_digest(""));
    }
    if [Method::GET, Method::HEAD].contains(&head.method) {
        normalize_range(headers);
        head.extensions.insert(ETagLists::take(headers));
    }
    ETAGS.iter().for_each(|name| quote(headers, name));
    join_metadata(headers);
    headers.remove(&EXPIRES);
    if let Some(expires) = headers.remove(http::header::EXPIRES) {
        headers.insert(EXPIRES, expires);
    }
    Ok(())
}

/// Removes a range that is invalid or lists several ranges: such a range is ignored (RFC 9110 section 14.2).
fn normalize_range(headers: &mut HeaderMap) {
    let Some(value) = headers.remove(http::header::RANGE) else { return };
    let range = value.to_str().ok().and_then(|text| Range::parse(&clamp_offsets(text)).ok());
    if let Some(range) = range.and_then(|range| HeaderValue::try_from(range.to_header_string()).ok()) {
        headers.insert(http::header::RANGE, range);
    }
}

/// Replaces offsets beyond the range of an integer by the greatest integer. Both lie beyond every object.
fn clamp_offsets(range: &str) -> String {
    let Some((first, last)) = range.strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
        return range.to_owned();
    };
    let clamp = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        match digits.parse::<i64>() {
            Err(_) if is_number => i64::MAX.to_string(),
            _ => digits.to_owned(),
        }
    };
    format!("bytes={}-{}", clamp(first), clamp(last))
}

/// Adds the quotes that some clients leave out of an etag.
fn quote(headers: &mut HeaderMap, name: &HeaderName) {
    let Some(text) = headers::text(headers, name) else { return };
    if text.is_empty() || text == "*" || text.starts_with('"') || text.starts_with("W/") {
        return;
    }
    if let Ok(quoted) = HeaderValue::try_from(format!("\"{text}\"")) {
        headers.insert(name, quoted);
    }
}

/// Joins repeated user metadata headers into one value (S3 User Guide, "Working with object metadata").
fn join_metadata(headers: &mut HeaderMap) {
    let names: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("x-amz-meta-")).cloned().collect();
    for name in names {
        let values: Vec<&[u8]> = headers.get_all(&name).iter().map(HeaderValue::as_bytes).collect();
        if values.len() > 1
            && let Ok(joined) = HeaderValue::from_bytes(&values.join(&b","[..]))
        {
            headers.insert(name, joined);
        }
    }
}

fn check_numbers(query: &Query) -> S3Result<()> {
    for (name, value) in query.iter() {
        if NUMBERS.contains(&name) && !value.is_empty() && value.parse::<i32>().is_err() {
            let message = format!("Provided {value} not an integer or within integer range");
            return Err(invalid_argument(&message, name, value));
        }
    }
    Ok(())
}

fn check_checksums(headers: &HeaderMap) -> S3Result<()> {
    let names = headers.keys().filter_map(|name| name.as_str().strip_prefix("x-amz-checksum-"));
    let is_known =
        |name: &str| ["algorithm", "mode", "type"].contains(&name) || Algorithm::from_name(name).is_ok();
    match names.into_iter().all(is_known) {
        true => Ok(()),
        false => Err(s3_error!(
            InvalidRequest,
            "The algorithm type you specified in x-amz-checksum- header is invalid."
        )),
    }
}

fn check_retention(headers: &HeaderMap) -> S3Result<()> {
    let name = "x-amz-object-lock-retain-until-date";
    let Some(text) = headers.get(name).map(|value| value.to_str().unwrap_or_default()) else { return Ok(()) };
    let is_date = text.is_empty() || Timestamp::parse(TimestampFormat::DateTime, text).is_ok();
    let invalid = || -> S3Error {
        invalid_argument("The retain until date must be provided in ISO 8601 format", name, text)
    };
    if is_date { Ok(()) } else { Err(invalid()) }
}
