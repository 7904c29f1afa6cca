//! Records as S3 has them (S3 User Guide, "Event message structure"), and what others put into them.
//!
//! A key is written as in a query: `+` is a space, `%` and two digits a byte. MinIO and its kin say content type and user
//! metadata, with names as Go writes headers; Ceph says metadata and tags as lists; Tenon says all of it as MinIO does.

use super::text::{Few, Pairs, Text, Whole};
use super::{DialectError, checked};
use crate::{Hint, Order, Said, What};
use percent_encoding::percent_decode;
use serde::Deserialize;
use std::borrow::Cow;

/// Before the names of user metadata.
const USER_PREFIX: &str = "x-amz-meta-";
/// Begins what a header holds that is no ASCII (RFC 2047): the object says what it means.
const ENCODED_WORD: &str = "=?";

/// All records of a message.
pub(super) type Records<'a> = Few<Record<'a>>;

/// What MinIO adds to a list in Redis: several in a row.
#[derive(Deserialize)]
pub(super) struct Access<'a> {
    #[serde(rename = "Event", alias = "Records", borrow)]
    pub(super) records: Records<'a>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Record<'a> {
    #[serde(rename = "eventSource", borrow, default)]
    source: Text<'a>,
    #[serde(rename = "eventTime", borrow)]
    time: Option<Text<'a>>,
    #[serde(rename = "eventName", borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    s3: About<'a>,
}

#[derive(Debug, Deserialize)]
struct About<'a> {
    #[serde(borrow)]
    bucket: Bucket<'a>,
    #[serde(borrow)]
    object: Object<'a>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Bucket<'a> {
    #[serde(borrow)]
    pub(super) name: Text<'a>,
}

#[derive(Debug, Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(default)]
    size: Whole,
    #[serde(rename = "eTag", borrow, default)]
    etag: Text<'a>,
    #[serde(rename = "versionId", borrow, default)]
    version: Text<'a>,
    #[serde(borrow, default)]
    sequencer: Text<'a>,
    #[serde(rename = "contentType", borrow, default)]
    content_type: Text<'a>,
    #[serde(rename = "userMetadata", borrow)]
    user: Option<Pairs<'a>>,
    #[serde(borrow, default)]
    metadata: Pairs<'a>,
    #[serde(borrow)]
    tags: Option<Pairs<'a>>,
}

impl<'a> Record<'a> {
    pub(super) fn read(self) -> Result<Option<Hint<'a>>, DialectError> {
        let name = self.name.strip_prefix("s3:").unwrap_or(&self.name);
        let mut object = self.s3.object;
        let Some(what) = what(name, &object.version) else { return Ok(None) };
        let is_ceph = self.source == "ceph:s3";
        let order = order(&object.sequencer).filter(|_| has_order(what, &self.source));
        checked(Hint {
            bucket: self.s3.bucket.name.0,
            key: key(std::mem::take(&mut object.key)),
            what,
            order,
            time: self.time.and_then(|time| time.timestamp()),
            said: if says_what_is(name) { object.said(is_ceph) } else { Said::default() },
        })
    }
}

impl<'a> Object<'a> {
    fn said(self, is_ceph: bool) -> Said<'a> {
        Said {
            size_bytes: self.size.0,
            etag: etag(self.etag),
            version: self.version.filled(),
            content_type: self.content_type.filled(),
            properties: match self.user {
                Some(user) => properties(user),
                None if self.metadata.0.is_empty() => None,
                None => properties(self.metadata),
            },
            // Ceph writes the lists also where it did not look.
            tags: self.tags.map(|tags| tags.0).filter(|tags| !is_ceph || !tags.is_empty()),
        }
    }
}

/// Whether an event of this name describes the object that is there now.
fn says_what_is(name: &str) -> bool {
    name.starts_with("ObjectCreated:") || name.starts_with("ObjectTagging:")
}

/// What a kind of event means; `None` is nothing that matters here.
fn what(name: &str, version: &str) -> Option<What> {
    let (family, kind) = name.split_once(':').unwrap_or((name, ""));
    match (family, kind) {
        ("ObjectCreated", "PutTagging" | "DeleteTagging" | "PutRetention" | "PutLegalHold") => {
            Some(What::Changed)
        }
        ("ObjectCreated", _) | ("ObjectSynced", "Create") => Some(What::Stored),
        ("ObjectTagging" | "ObjectAcl", _) => Some(What::Changed),
        // Only a version is gone, which may be an old one: what is there now is not said.
        ("ObjectRemoved" | "LifecycleExpiration" | "ObjectSynced", "Delete") if !version.is_empty() => {
            Some(What::Changed)
        }
        ("ObjectRemoved" | "LifecycleExpiration", _)
        | ("ObjectSynced", "Delete" | "DeletionMarkerCreated") => Some(What::Removed),
        // Ceph; the rest of the family is about what is not current.
        ("ObjectLifecycle", "Expiration:Current") => Some(What::Removed),
        ("ObjectAccessed", _) => Some(What::Read),
        _ => None,
    }
}

/// Whether an event's sequencer is its own: MinIO has the object's there, which a change of tags repeats.
fn has_order(what: What, source: &str) -> bool {
    what != What::Changed || matches!(source, "aws:s3" | "ceph:s3")
}

/// A `sequencer`: hexadecimal, shorter ones are padded on the left.
pub(super) fn order(sequencer: &str) -> Option<Order> {
    u128::from_str_radix(sequencer, 16).ok().map(Order)
}

/// An etag without its quotes.
pub(super) fn etag(text: Text<'_>) -> Option<Cow<'_, str>> {
    let text = text.filled()?;
    if !text.starts_with('"') {
        return Some(text);
    }
    Some(Cow::Owned(text.trim_matches('"').to_owned()))
}

/// The bytes of a key that is written as in a query.
fn key(text: Text<'_>) -> Cow<'_, [u8]> {
    let bytes = text.bytes();
    if !bytes.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return bytes;
    }
    let spaced: Vec<u8> = bytes.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    Cow::Owned(percent_decode(&spaced).collect())
}

/// The user metadata among headers; `None` where a value is not written as it is.
fn properties<'a>(headers: Pairs<'a>) -> Option<Vec<(Cow<'a, str>, Cow<'a, str>)>> {
    let mut properties = Vec::with_capacity(headers.0.len());
    for (name, value) in headers.0 {
        let Some(name) = without_prefix(name) else { continue };
        if value.starts_with(ENCODED_WORD) {
            return None;
        }
        properties.push((name, value));
    }
    Some(properties)
}

/// The name of user metadata, in lower case; `None` for other headers.
fn without_prefix(name: Cow<'_, str>) -> Option<Cow<'_, str>> {
    let (prefix, _) = name.split_at_checked(USER_PREFIX.len())?;
    if !prefix.eq_ignore_ascii_case(USER_PREFIX) {
        return None;
    }
    let rest = match name {
        Cow::Borrowed(name) => Cow::Borrowed(&name[USER_PREFIX.len()..]),
        Cow::Owned(name) => Cow::Owned(name[USER_PREFIX.len()..].to_owned()),
    };
    Some(lower(rest))
}

/// In lower case.
pub(super) fn lower(name: Cow<'_, str>) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Cow::Owned(name.to_ascii_lowercase());
    }
    name
}
