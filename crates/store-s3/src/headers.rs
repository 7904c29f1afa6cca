//! Encoding and decoding of object descriptions in headers.
//!
//! Header values of user metadata are printable ASCII. Other text is sent as one RFC 2047 word, the form that S3 itself
//! uses, and is decoded exactly (see [`escape::metadata_value`]).

use super::escape;
use super::failure::Failure;
use http::header::{
    CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED,
};
use store::{Attributes, ETag, ObjectKey, ObjectMeta, ObjectRef, Result, StoreError, Timestamp, VersionId};

pub(super) const USER_PREFIX: &str = "x-amz-meta-";
pub(super) const STORAGE_CLASS: HeaderName = HeaderName::from_static("x-amz-storage-class");
const TAG_COUNT: HeaderName = HeaderName::from_static("x-amz-tagging-count");
const VERSION_ID: HeaderName = HeaderName::from_static("x-amz-version-id");
/// The header of an object's server-side encryption.
pub(super) const ENCRYPTION: &str = "x-amz-server-side-encryption";
pub(super) const ENCRYPTION_KEY: &str = "x-amz-server-side-encryption-aws-kms-key-id";

/// The descriptive headers that S3 stores, in addition to `Content-Type`. The last two are about encryption.
pub(super) const SYSTEM: [&str; 8] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "expires",
    WEBSITE_REDIRECT,
    ENCRYPTION,
    ENCRYPTION_KEY,
];

/// The redirect target of an object on a website.
pub(super) const WEBSITE_REDIRECT: &str = "x-amz-website-redirect-location";

/// The default storage class, which is not kept among an object's attributes.
pub(super) const DEFAULT_CLASS: &str = "STANDARD";

/// The default encryption of S3.
const DEFAULT_ENCRYPTION: &str = "AES256";

/// Content types that S3-compatible servers return for objects stored without a type.
const DEFAULT_TYPES: [&str; 2] = ["binary/octet-stream", "application/octet-stream"];

/// Makes a header's value of a text. Fails if headers cannot contain the text, which the error calls `what`.
pub(super) fn value(what: &str, text: &str) -> Result<HeaderValue> {
    HeaderValue::from_str(text).map_err(|_| {
        StoreError::Invalid(format!("invalid {what} {text:?}: HTTP headers cannot contain these characters"))
    })
}

/// Reads the object's description from a response to HEAD or GET.
pub(super) fn object_meta(key: &ObjectKey, headers: &HeaderMap) -> Result<ObjectMeta, Failure> {
    let size_bytes = match content_range(headers) {
        Some(range) => range.whole_bytes,
        None => {
            content_length(headers).ok_or_else(|| Failure::malformed("an object without Content-Length"))?
        }
    };
    // The header is missing if the object has no tags, or if this user may not read them.
    let tag_count = text(headers, &TAG_COUNT).and_then(|count| count.parse().ok()).unwrap_or(0);
    Ok(ObjectMeta {
        object: object_ref(key, headers)?,
        size_bytes,
        attributes: attributes(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))),
        tag_count: Some(tag_count),
    })
}

/// Reads the object's identity from a response.
pub(super) fn object_ref(key: &ObjectKey, headers: &HeaderMap) -> Result<ObjectRef, Failure> {
    let etag = text(headers, &ETAG).ok_or_else(|| Failure::malformed("an object without ETag"))?;
    Ok(ObjectRef {
        key: key.clone(),
        etag: ETag::new(etag),
        version: version(headers),
        last_modified: text(headers, &LAST_MODIFIED).and_then(http_date),
    })
}

/// Reads the version; `None` for a bucket without versions, which sends none or `null`.
pub(super) fn version(headers: &HeaderMap) -> Option<VersionId> {
    text(headers, &VERSION_ID).filter(|id| !id.is_empty() && *id != "null").map(Into::into)
}

/// Reads the attributes from headers, which are pairs of a name in lower case and a value.
pub(super) fn attributes<'h>(headers: impl Iterator<Item = (&'h str, &'h [u8])>) -> Attributes {
    let mut attributes = Attributes::default();
    for (name, raw) in headers {
        let value = || Some(std::str::from_utf8(raw).ok()?.to_owned());
        if let Some(user) = name.strip_prefix(USER_PREFIX) {
            attributes.user.insert(user.to_owned(), escape::metadata_text(raw));
        } else if name == CONTENT_TYPE.as_str() {
            attributes.content_type = value().filter(|value| !DEFAULT_TYPES.contains(&value.as_str()));
        } else if name == STORAGE_CLASS.as_str() {
            attributes.storage_class = value().filter(|class| class != DEFAULT_CLASS);
        } else if SYSTEM.contains(&name) && !raw.is_empty() {
            attributes.system.insert(name.to_owned(), String::from_utf8_lossy(raw).into_owned());
        }
    }
    if attributes.system.get(ENCRYPTION).is_some_and(|how| how == DEFAULT_ENCRYPTION) {
        attributes.system.remove(ENCRYPTION);
    }
    attributes
}

/// `Content-Range: bytes first-last/whole`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContentRange {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) whole_bytes: u64,
}

pub(super) fn content_range(headers: &HeaderMap) -> Option<ContentRange> {
    let (range, whole) = text(headers, &CONTENT_RANGE)?.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    Some(ContentRange {
        first: first.parse().ok()?,
        last: last.parse().ok()?,
        whole_bytes: whole.parse().ok()?,
    })
}

pub(super) fn content_length(headers: &HeaderMap) -> Option<u64> {
    text(headers, &CONTENT_LENGTH)?.parse().ok()
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Parses a date like `Tue, 15 Nov 1994 08:12:31 GMT`.
fn http_date(text: &str) -> Option<Timestamp> {
    let moment = jiff::fmt::rfc2822::parse(text).ok()?;
    Some(Timestamp::from_secs(moment.timestamp().as_second(), 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ObjectKey {
        ObjectKey::try_from("k").unwrap()
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_bytes(v.as_bytes()).unwrap()))
            .collect()
    }

    #[test]
    fn the_size_is_read_from_content_range() {
        let meta = object_meta(
            &key(),
            &headers(&[
                ("etag", "\"e\""),
                ("content-length", "10"),
                ("content-range", "bytes 5-14/1000"),
                ("last-modified", "Tue, 15 Nov 1994 08:12:31 GMT"),
                ("x-amz-version-id", "null"),
                ("x-amz-meta-name", "=?UTF-8?B?w7w=?="),
                ("content-type", "binary/octet-stream"),
                ("x-amz-storage-class", "STANDARD"),
            ]),
        )
        .unwrap();
        assert_eq!(meta.size_bytes, 1000);
        assert_eq!(meta.object.last_modified, Some(Timestamp::from_secs(784_887_151, 0)));
        assert_eq!(
            (meta.object.version, meta.attributes.content_type, meta.attributes.storage_class),
            (None, None, None)
        );
        assert_eq!(meta.attributes.user["name"], "ü");
    }

    #[test]
    fn a_response_without_an_etag_or_a_size_is_malformed() {
        assert!(object_meta(&key(), &headers(&[("content-length", "1")])).is_err());
        assert!(object_meta(&key(), &headers(&[("etag", "e")])).is_err());
    }
}
