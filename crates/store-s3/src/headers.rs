//! Encoding and decoding of object descriptions in headers.
//!
//! Header values of user metadata are printable ASCII. Other text is sent as one RFC 2047 word, the form that S3 itself
//! uses, and is decoded exactly (see [`escape::metadata_value`]).

use super::call::Call;
use super::client::Client;
use super::escape;
use super::failure::Failure;
use http::header::{
    CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED,
};
use store::{
    Attributes, ETag, ObjectKey, ObjectMeta, ObjectRef, Result, StoreError, Tags, Timestamp, VersionId,
};

const USER_PREFIX: &str = "x-amz-meta-";
const STORAGE_CLASS: HeaderName = HeaderName::from_static("x-amz-storage-class");
const TAGGING: HeaderName = HeaderName::from_static("x-amz-tagging");
const TAG_COUNT: HeaderName = HeaderName::from_static("x-amz-tagging-count");
const VERSION_ID: HeaderName = HeaderName::from_static("x-amz-version-id");
/// The header of an object's server-side encryption.
pub(super) const ENCRYPTION: &str = "x-amz-server-side-encryption";
const ENCRYPTION_KEY: &str = "x-amz-server-side-encryption-aws-kms-key-id";

/// The descriptive headers that S3 stores, in addition to `Content-Type`. The last two are about encryption.
const SYSTEM: [&str; 8] = [
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

/// The default storage class.
pub(super) const DEFAULT_CLASS: &str = "STANDARD";

/// The default encryption of S3.
const DEFAULT_ENCRYPTION: &str = "AES256";

/// Content types that S3-compatible servers return for objects stored without a type.
const DEFAULT_TYPES: [&str; 2] = ["binary/octet-stream", "application/octet-stream"];

impl Client {
    /// Adds the headers of a new object: attributes, tags, and the configuration's encryption and storage class.
    pub(super) fn add_description(&self, call: Call, attributes: &Attributes, tags: &Tags) -> Result<Call> {
        let call = self.add_attributes(call, attributes)?;
        if tags.is_empty() { Ok(call) } else { add_tags(call, tags) }
    }

    /// Adds attributes and the configuration's encryption and storage class.
    pub(super) fn add_attributes(&self, call: Call, attributes: &Attributes) -> Result<Call> {
        // An object's own encryption overrides the configuration's.
        let is_protected = attributes.system.contains_key(ENCRYPTION);
        let mut call = if is_protected { call } else { self.add_encryption(call)? };
        if let Some(text) = &attributes.content_type {
            call = call.header(CONTENT_TYPE, value("Content-Type", text)?);
        }
        for (name, text) in &attributes.system {
            let known = SYSTEM.iter().find(|known| **known == name.as_str());
            let known =
                known.ok_or_else(|| StoreError::Invalid(format!("'{name}' is not a descriptive header")))?;
            call = call.header(HeaderName::from_static(known), value(name, text)?);
        }
        for (name, text) in &attributes.user {
            call = call.header(user_name(name)?, value(name, &escape::metadata_value(text))?);
        }
        if let Some(class) = attributes.storage_class.as_ref().or(self.config.storage_class.as_ref()) {
            call = call.header(STORAGE_CLASS, value("storage class", class)?);
        }
        Ok(call)
    }

    /// Adds the configuration's encryption.
    pub(super) fn add_encryption(&self, mut call: Call) -> Result<Call> {
        if let Some(encryption) = &self.config.encryption {
            call = call.header(HeaderName::from_static(ENCRYPTION), value("encryption", encryption)?);
        }
        if let Some(key) = &self.config.encryption_key {
            call = call.header(HeaderName::from_static(ENCRYPTION_KEY), value("encryption key", key)?);
        }
        Ok(call)
    }
}

fn user_name(name: &str) -> Result<HeaderName> {
    let lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
    let header = HeaderName::from_bytes(format!("{USER_PREFIX}{name}").as_bytes());
    header.ok().filter(|_| lower && !name.is_empty()).ok_or_else(|| {
        StoreError::Invalid(format!("invalid metadata name {name:?}: use lower-case letters, digits and '-'"))
    })
}

/// Adds the header of the tags, also for an empty set.
pub(super) fn add_tags(call: Call, tags: &Tags) -> Result<Call> {
    Ok(call.header(TAGGING, value("tags", &tagging(tags))?))
}

/// Encodes tags as a query string, as S3 requires.
pub(super) fn tagging(tags: &Tags) -> String {
    let pairs = tags.iter().map(|(name, value)| format!("{}={}", escape::query(name), escape::query(value)));
    pairs.collect::<Vec<_>>().join("&")
}

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
        attributes: attributes(headers),
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

/// Reads the version; a bucket without versions sends none or `null`.
pub(super) fn version(headers: &HeaderMap) -> Option<VersionId> {
    text(headers, &VERSION_ID).filter(|id| !id.is_empty() && *id != "null").map(Into::into)
}

fn attributes(headers: &HeaderMap) -> Attributes {
    let mut attributes = Attributes {
        content_type: text(headers, &CONTENT_TYPE).filter(|t| !DEFAULT_TYPES.contains(t)).map(str::to_owned),
        storage_class: text(headers, &STORAGE_CLASS)
            .filter(|class| *class != DEFAULT_CLASS)
            .map(str::to_owned),
        ..Attributes::default()
    };
    for (name, value) in headers {
        let raw = value.as_bytes();
        if let Some(user) = name.as_str().strip_prefix(USER_PREFIX) {
            attributes.user.insert(user.to_owned(), escape::metadata_text(raw));
        } else if SYSTEM.contains(&name.as_str()) && !raw.is_empty() {
            attributes.system.insert(name.as_str().to_owned(), String::from_utf8_lossy(raw).into_owned());
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

    #[test]
    fn names_that_are_no_headers_are_refused() {
        for name in ["", "Upper", "with space", "ü"] {
            assert!(matches!(user_name(name), Err(StoreError::Invalid(_))), "{name}");
        }
    }
}
