//! Object headers: an object's [`Attributes`] as S3's requests and responses carry them.

use http::header::AsHeaderName;
use http::{HeaderMap, HeaderName, StatusCode};
use s3s::dto::{self, Timestamp, TimestampFormat};
use s3s::{S3Result, s3_error};
use std::collections::BTreeMap;
use store::{Attributes, Tags};

use crate::error::{bad_request, custom, invalid_argument, malformed_xml};
use crate::error_document::with_details;
use crate::metadata_names::is_internal;

/// Carries `Expires` verbatim through `s3s`, which would parse and reformat it.
pub(crate) const EXPIRES: HeaderName = HeaderName::from_static("x-tenon-expires");
/// S3's content type of objects stored without one.
const DEFAULT_TYPE: &str = "binary/octet-stream";
/// The content type of directory markers stored without one, as the S3 console sets it.
const DIRECTORY_TYPE: &str = "application/x-directory";
/// The name of the header that redirects website visitors of an object.
pub(crate) const WEBSITE_REDIRECT: &str = "x-amz-website-redirect-location";
/// S3's limit on the names and values of an object's user metadata together, in bytes.
const USER_BYTES_MAX: usize = 2048;
const TAGS_MAX: usize = 10;
const TAG_KEY_CHARS_MAX: usize = 128;
const TAG_VALUE_CHARS_MAX: usize = 256;

/// Collects the object headers from the input of PUT, CreateMultipartUpload or CopyObject.
macro_rules! given_attributes {
    ($input:expr, $headers:expr) => {
        $crate::headers::attributes($crate::headers::ObjectHeaders {
            content_type: $input.content_type.clone(),
            cache_control: $input.cache_control.clone(),
            content_disposition: $input.content_disposition.clone(),
            content_encoding: $input.content_encoding.clone(),
            content_language: $input.content_language.clone(),
            expires: $crate::headers::given_expires($headers),
            metadata: $input.metadata.clone(),
            storage_class: $input.storage_class.as_ref().map(|class| class.as_str().to_owned()),
            website_redirect: $input.website_redirect_location.clone(),
            is_directory: $input.key.ends_with('/'),
        })
    };
}
pub(crate) use given_attributes;

/// Sets the object headers in the output of GET or HEAD.
macro_rules! show_attributes {
    ($output:expr, $attributes:expr) => {{
        let attributes: &store::Attributes = $attributes;
        let system = |name: &str| attributes.system.get(name).cloned();
        $output.content_type = Some($crate::headers::content_type(attributes));
        $output.cache_control = system("cache-control");
        $output.content_disposition = system("content-disposition");
        $output.content_encoding = system("content-encoding");
        $output.content_language = system("content-language");
        $output.website_redirect_location = system("x-amz-website-redirect-location");
        $output.metadata = $crate::headers::metadata(attributes);
        $output.storage_class = Some($crate::headers::storage_class(attributes).into());
        let lock = store::Lock::of(attributes);
        if let Some(retention) = lock.retention {
            $output.object_lock_mode = Some(s3s::dto::ObjectLockMode::from_static(retention.mode.name()));
            $output.object_lock_retain_until_date = Some($crate::headers::timestamp(retention.until));
        }
        $output.object_lock_legal_hold_status = lock.legal_hold.map(|is_held| {
            s3s::dto::ObjectLockLegalHoldStatus::from_static(if is_held { "ON" } else { "OFF" })
        });
    }};
}
pub(crate) use show_attributes;

/// The headers of a new object, as a request gives them.
pub(crate) struct ObjectHeaders {
    pub(crate) content_type: Option<String>,
    pub(crate) cache_control: Option<String>,
    pub(crate) content_disposition: Option<String>,
    pub(crate) content_encoding: Option<String>,
    pub(crate) content_language: Option<String>,
    /// The `Expires` header, verbatim.
    pub(crate) expires: Option<String>,
    pub(crate) metadata: Option<dto::Metadata>,
    pub(crate) storage_class: Option<String>,
    pub(crate) website_redirect: Option<String>,
    /// Whether consoles show the key as a directory.
    pub(crate) is_directory: bool,
}

/// Converts headers to the attributes that the store keeps. Errors: `MetadataTooLarge`, `InvalidRedirectLocation`.
pub(crate) fn attributes(given: ObjectHeaders) -> S3Result<Attributes> {
    if let Some(target) = &given.website_redirect
        && !["/", "http://", "https://"].iter().any(|start| target.starts_with(start))
    {
        return Err(custom(
            "InvalidRedirectLocation",
            StatusCode::BAD_REQUEST,
            "The website redirect location must have a prefix of 'http://' or 'https://' or '/'.",
        ));
    }
    let system = [
        ("cache-control", given.cache_control),
        ("content-disposition", given.content_disposition),
        ("content-encoding", given.content_encoding.and_then(|text| without_chunked(&text))),
        ("content-language", given.content_language),
        ("expires", given.expires),
        (WEBSITE_REDIRECT, given.website_redirect),
    ];
    let system: BTreeMap<String, String> =
        system.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    let user: BTreeMap<String, String> = given
        .metadata
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .filter(|(name, _)| !is_internal(name))
        .collect();
    let user_bytes: usize = user.iter().map(|(name, value)| name.len() + value.len()).sum();
    if user_bytes > USER_BYTES_MAX {
        let error =
            s3_error!(MetadataTooLarge, "Your metadata headers exceed the maximum allowed metadata size");
        let (size, max) = (user_bytes.to_string(), USER_BYTES_MAX.to_string());
        return Err(with_details(error, &[("Size", &size), ("MaxSizeAllowed", &max)]));
    }
    let directory = given.is_directory.then(|| DIRECTORY_TYPE.to_owned());
    Ok(Attributes {
        content_type: given.content_type.filter(|kind| !kind.is_empty()).or(directory),
        system,
        user,
        storage_class: given.storage_class,
    })
}

/// Removes `aws-chunked`, which describes the transfer and not the object.
fn without_chunked(encoding: &str) -> Option<String> {
    let rest: Vec<&str> = encoding.split(',').map(str::trim).filter(|word| *word != "aws-chunked").collect();
    Some(rest.join(",")).filter(|rest| !rest.is_empty())
}

pub(crate) fn content_type(attributes: &Attributes) -> String {
    attributes.content_type.clone().unwrap_or_else(|| DEFAULT_TYPE.to_owned())
}

pub(crate) fn storage_class(attributes: &Attributes) -> String {
    attributes.storage_class.clone().unwrap_or_else(|| "STANDARD".to_owned())
}

pub(crate) fn metadata(attributes: &Attributes) -> Option<dto::Metadata> {
    let shown: dto::Metadata = attributes
        .user
        .iter()
        .filter(|(name, _)| !is_internal(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    (!shown.is_empty()).then_some(shown)
}

/// Returns the `Expires` header of a new object, verbatim; `None` if there is none.
pub(crate) fn given_expires(headers: &HeaderMap) -> Option<String> {
    text(headers, EXPIRES).filter(|value| !value.is_empty()).map(str::to_owned)
}

/// Adds an object's `Expires` header verbatim; `s3s` would reformat it.
pub(crate) fn show_expires(headers: &mut HeaderMap, attributes: &Attributes) {
    let expires = attributes.system.get("expires").and_then(|text| http::HeaderValue::try_from(text).ok());
    headers.extend(expires.map(|expires| (http::header::EXPIRES, expires)));
}

/// Returns the value of a header; `None` if there is none, or if it is not visible ASCII.
pub(crate) fn text(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Converts a store's timestamp to S3's.
pub(crate) fn timestamp(time: store::Timestamp) -> Timestamp {
    Timestamp::from(time.to_system_time())
}

/// Formats a timestamp.
pub(crate) fn format_time(time: &Timestamp, format: TimestampFormat) -> String {
    let mut text = Vec::new();
    time.format(format, &mut text).ok();
    String::from_utf8_lossy(&text).into_owned()
}

/// Converts S3's timestamp to a store's.
pub(crate) fn store_timestamp(time: &Timestamp) -> store::Timestamp {
    let text = format_time(time, TimestampFormat::EpochSeconds);
    let (secs, fraction) = text.split_once('.').unwrap_or((&text, "0"));
    let nanos = format!("{fraction:0<9}").get(..9).and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
    store::Timestamp::from_secs(secs.parse().unwrap_or(0), nanos)
}

/// Converts S3's timestamp to whole seconds since 1970.
pub(crate) fn secs(time: &Timestamp) -> i64 {
    let text = format_time(time, TimestampFormat::EpochSeconds);
    text.split('.').next().and_then(|whole| whole.parse().ok()).unwrap_or(0)
}

/// Parses a date like `20130524T000000Z` to seconds since 1970.
pub(crate) fn basic_date(text: &str) -> Option<i64> {
    let is_long = text.len() == 16 && text.is_ascii() && text.as_bytes()[8] == b'T';
    let part = |range: std::ops::Range<usize>| text.get(range).filter(|_| is_long);
    let (date, time) = (part(0..8)?, part(9..16)?);
    let iso = format!(
        "{}-{}-{}T{}:{}:{}",
        &date[..4],
        &date[4..6],
        &date[6..],
        &time[..2],
        &time[2..4],
        &time[4..]
    );
    let time = Timestamp::parse(TimestampFormat::DateTime, &iso).ok()?;
    Some(secs(&time))
}

pub(crate) fn etag(etag: &store::ETag) -> dto::ETag {
    dto::ETag::Strong(etag.as_str().to_owned())
}

/// Parses the header `x-amz-tagging`: a URL-encoded query.
pub(crate) fn tags_of_header(text: Option<&str>) -> S3Result<Tags> {
    let text = text.unwrap_or_default();
    let invalid = || {
        let message = "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag name duplicates.";
        invalid_argument(message, "x-amz-tagging", text)
    };
    let mut pairs: Vec<(String, String)> = Vec::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (key, value) = (decoded(key).ok_or_else(invalid)?, decoded(value).ok_or_else(invalid)?);
        if key.is_empty() || pairs.iter().any(|(known, _)| *known == key) {
            return Err(invalid());
        }
        pairs.push((key, value));
    }
    checked_tags(pairs, TAGS_MAX)
}

/// Decodes a key or value of a query; `None` unless it is validly encoded UTF-8.
fn decoded(word: &str) -> Option<String> {
    let mut rest = word.split('%').skip(1);
    let is_code = |text: &str| text.get(..2).is_some_and(|code| code.bytes().all(|c| c.is_ascii_hexdigit()));
    if !rest.all(is_code) || word.contains('=') {
        return None;
    }
    let word = word.replace('+', " ");
    percent_encoding::percent_decode_str(&word).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

/// Parses the tags of a document.
pub(crate) fn tags_of_set(set: &[dto::Tag], tags_max: usize) -> S3Result<Tags> {
    let pair = |tag: &dto::Tag| match (&tag.key, &tag.value) {
        (Some(key), Some(value)) => Ok((key.clone(), value.clone())),
        _ => Err(malformed_xml()),
    };
    checked_tags(set.iter().map(pair).collect::<S3Result<_>>()?, tags_max)
}

pub(crate) fn tag_set(tags: Tags) -> Vec<dto::Tag> {
    tags.into_iter().map(|(key, value)| dto::Tag { key: Some(key), value: Some(value) }).collect()
}

fn checked_tags(pairs: Vec<(String, String)>, tags_max: usize) -> S3Result<Tags> {
    if pairs.len() > tags_max {
        return Err(if tags_max == TAGS_MAX {
            bad_request("Object tags cannot be greater than 10")
        } else {
            bad_request(format!("Bucket tag count cannot be greater than {tags_max}"))
        });
    }
    let mut tags = Tags::new();
    for (key, value) in pairs {
        if key.is_empty() || key.chars().count() > TAG_KEY_CHARS_MAX || !has_tag_chars(&key) {
            return Err(s3_error!(InvalidTag, "The TagKey you have provided is invalid"));
        }
        if value.chars().count() > TAG_VALUE_CHARS_MAX || !has_tag_chars(&value) {
            return Err(s3_error!(InvalidTag, "The TagValue you have provided is invalid"));
        }
        if tags.insert(key, value).is_some() {
            return Err(s3_error!(InvalidTag, "Cannot provide multiple Tags with the same key"));
        }
    }
    Ok(tags)
}

/// Returns whether a text has only letters, digits and spaces of any script, and `+ - = . _ : / @` (S3 User Guide,
/// "Categorizing your storage using tags").
fn has_tag_chars(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || c.is_whitespace() || "+-=._:/@".contains(c))
}
