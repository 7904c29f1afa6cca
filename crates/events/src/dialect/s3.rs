//! Records as S3 has them (S3 User Guide, "Event message structure"), and what others put into them.
//!
//! A key is written as in a query: `+` is a space, `%` and two digits a byte. MinIO and its kin say content type and user
//! metadata, with names as Go writes headers; Ceph says metadata and tags as lists; Tenon says all of it as MinIO does. versitygw
//! writes keys as they are, and counts from one whenever it starts, which is no order.

use super::json::{Json, Pairs};
use super::{DialectError, bytes, checked, filled, lower};
use crate::{Hint, Order, Said, What};
use percent_encoding::percent_decode;
use std::borrow::Cow;

/// Before the names of user metadata.
const USER_PREFIX: &str = "x-amz-meta-";
/// Begins what a header holds that is no ASCII (RFC 2047): the object says what it means.
const ENCODED_WORD: &str = "=?";

/// The records of a message: they are handed on as they are read.
#[derive(Default)]
pub(super) struct Records {
    were_there: bool,
    error: Option<DialectError>,
}

impl Records {
    /// Reads a list of records. One that tells nothing of sense does not take the others with it.
    pub(super) fn read<'m>(
        &mut self,
        json: &mut Json<'m>,
        each: &mut dyn FnMut(Hint<'m>),
    ) -> Result<(), DialectError> {
        self.were_there = true;
        json.elements(|json| {
            match Record::read_from(json)?.hint() {
                Ok(hint) => hint.into_iter().for_each(&mut *each),
                Err(error) => self.error = self.error.take().or(Some(error)),
            }
            Ok(())
        })
    }

    /// Reads what MinIO adds to a list in Redis.
    pub(super) fn read_access<'m>(
        &mut self,
        json: &mut Json<'m>,
        each: &mut dyn FnMut(Hint<'m>),
    ) -> Result<(), DialectError> {
        json.fields(|json, name| match name {
            b"Event" | b"Records" => self.read(json, each),
            _ => Ok(json.skip()?),
        })
    }

    pub(super) fn were_there(&self) -> bool {
        self.were_there
    }

    /// The first thing that made no sense.
    pub(super) fn outcome(self) -> Result<(), DialectError> {
        self.error.map_or(Ok(()), Err)
    }
}

#[derive(Default)]
struct Record<'a> {
    source: Cow<'a, str>,
    time: Cow<'a, str>,
    name: Cow<'a, str>,
    bucket: Bucket<'a>,
    object: Object<'a>,
}

#[derive(Default)]
pub(super) struct Bucket<'a> {
    pub(super) name: Cow<'a, str>,
    arn: Cow<'a, str>,
}

#[derive(Default)]
struct Object<'a> {
    key: Cow<'a, str>,
    size_bytes: Option<u64>,
    etag: Cow<'a, str>,
    version: Cow<'a, str>,
    sequencer: Cow<'a, str>,
    content_type: Cow<'a, str>,
    user: Option<Pairs<'a>>,
    metadata: Pairs<'a>,
    tags: Option<Pairs<'a>>,
}

impl<'a> Record<'a> {
    fn read_from(json: &mut Json<'a>) -> Result<Self, DialectError> {
        let mut record = Self::default();
        json.fields(|json, name| {
            match name {
                b"eventSource" => record.source = json.text()?,
                b"eventTime" => record.time = json.text()?,
                b"eventName" => record.name = json.text()?,
                b"s3" => json.fields(|json, name| match name {
                    b"bucket" => {
                        record.bucket = Bucket::read_from(json)?;
                        Ok(())
                    }
                    b"object" => record.object.read_from(json),
                    _ => Ok(json.skip()?),
                })?,
                _ => json.skip()?,
            }
            Ok::<_, DialectError>(())
        })?;
        Ok(record)
    }

    fn hint(self) -> Result<Option<Hint<'a>>, DialectError> {
        let name = self.name.strip_prefix("s3:").unwrap_or(&self.name);
        if name.is_empty() {
            return Err(DialectError::Field("eventName"));
        }
        let mut object = self.object;
        let Some(what) = what(name, &object.version) else { return Ok(None) };
        let is_ceph = self.source == "ceph:s3";
        let is_versitygw = self.bucket.is_versitygw();
        let has_order = !is_versitygw && has_order(what, &self.source);
        let text = std::mem::take(&mut object.key);
        // versitygw has no lengths of copies.
        object.size_bytes = object.size_bytes.filter(|size| *size > 0 || !is_versitygw);
        let hint = Hint {
            bucket: self.bucket.name,
            key: if is_versitygw { bytes(text) } else { key(text) },
            what,
            order: order(&object.sequencer).filter(|_| has_order),
            time: crate::aws::time(&self.time),
            said: if says_what_is(name) { object.said(is_ceph) } else { Said::default() },
        };
        checked(hint).map(Some)
    }
}

impl<'a> Object<'a> {
    fn read_from(&mut self, json: &mut Json<'a>) -> Result<(), DialectError> {
        json.fields(|json, name| {
            match name {
                b"key" => self.key = json.text()?,
                b"size" => self.size_bytes = json.whole()?,
                b"eTag" => self.etag = json.text()?,
                b"versionId" => self.version = json.text()?,
                b"sequencer" => self.sequencer = json.text()?,
                b"contentType" => self.content_type = json.text()?,
                b"userMetadata" => self.user = Some(json.pairs()?),
                b"metadata" => self.metadata = json.pairs()?,
                b"tags" => self.tags = Some(json.pairs()?),
                _ => json.skip()?,
            }
            Ok(())
        })
    }

    fn said(self, is_ceph: bool) -> Said<'a> {
        Said {
            size_bytes: self.size_bytes,
            etag: etag(self.etag),
            version: filled(self.version),
            content_type: filled(self.content_type),
            properties: match self.user {
                Some(user) => properties(user),
                None if self.metadata.is_empty() => None,
                None => properties(self.metadata),
            },
            // Ceph writes the lists also where it did not look.
            tags: self.tags.filter(|tags| !is_ceph || !tags.is_empty()),
        }
    }
}

impl<'a> Bucket<'a> {
    pub(super) fn read_from(json: &mut Json<'a>) -> Result<Self, DialectError> {
        let mut bucket = Self::default();
        json.fields(|json, name| {
            match name {
                b"name" => bucket.name = json.text()?,
                b"arn" => bucket.arn = json.text()?,
                _ => json.skip()?,
            }
            Ok::<_, DialectError>(())
        })?;
        Ok(bucket)
    }

    /// versitygw calls itself AWS; it alone names the whole path there.
    fn is_versitygw(&self) -> bool {
        self.arn.starts_with("arn:aws:s3:::/")
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
pub(super) fn etag(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    let text = filled(text)?;
    if !text.starts_with('"') {
        return Some(text);
    }
    Some(Cow::Owned(text.trim_matches('"').to_owned()))
}

/// The bytes of a key that is written as in a query.
fn key(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    let bytes = bytes(text);
    if !bytes.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return bytes;
    }
    let spaced: Vec<u8> = bytes.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    Cow::Owned(percent_decode(&spaced).collect())
}

/// The user metadata among headers; `None` where a value is not written as it is.
fn properties(headers: Pairs<'_>) -> Option<Pairs<'_>> {
    if headers.iter().any(|(_, value)| value.starts_with(ENCODED_WORD)) {
        return None;
    }
    let named = |(name, value)| Some((without_prefix(name)?, value));
    Some(headers.into_iter().filter_map(named).collect())
}

/// The name of user metadata, in lower case; `None` for other headers.
fn without_prefix(name: Cow<'_, str>) -> Option<Cow<'_, str>> {
    let (prefix, _) = name.split_at_checked(USER_PREFIX.len())?;
    if !prefix.eq_ignore_ascii_case(USER_PREFIX) {
        return None;
    }
    Some(lower(match name {
        Cow::Borrowed(name) => Cow::Borrowed(&name[USER_PREFIX.len()..]),
        Cow::Owned(name) => Cow::Owned(name[USER_PREFIX.len()..].to_owned()),
    }))
}
