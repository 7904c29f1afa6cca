//! S3 event records (S3 User Guide, "Event message structure"), with the extensions and deviations of other servers.
//!
//! Keys are URL-encoded as in a query: `+` is a space, `%` and two digits a byte. MinIO and its relatives add content type and user
//! metadata, with names capitalised as Go does for headers. Ceph adds metadata and tags as lists. Tenon adds all of this in MinIO's form.
//! versitygw does not encode keys, and its sequencer starts at one whenever it starts, so it gives no order.

use super::json::{Json, Pairs};
use super::{DialectError, bytes, check_names, non_empty, to_lowercase};
use crate::{ChangeKind, Hint, ObjectDescription, Order};
use percent_encoding::percent_decode;
use std::borrow::Cow;

/// Prefix of user metadata names.
const USER_PREFIX: &str = "x-amz-meta-";
/// Beginning of a header value that is not ASCII (RFC 2047). A hint with such a value leaves the metadata out, and its
/// consumer must read it from the object.
const ENCODED_WORD: &str = "=?";

/// The records of a message. Their hints are passed on while the records are read.
#[derive(Default)]
pub(super) struct Records {
    were_there: bool,
    error: Option<DialectError>,
}

impl Records {
    /// Reads a list of records. An invalid record does not prevent the others from being read.
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

    /// Reads an element that MinIO appends to a list in Redis.
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

    /// Returns whether the message has a list of records, even an empty one.
    pub(super) fn are_present(&self) -> bool {
        self.were_there
    }

    /// Returns the first error.
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
        let Some(kind) = classify(name, &object.version) else { return Ok(None) };
        let is_ceph = self.source == "ceph:s3";
        let is_versitygw = self.bucket.is_versitygw();
        let has_order = !is_versitygw && has_order(kind, &self.source);
        let text = std::mem::take(&mut object.key);
        // versitygw reports length 0 for copies, so 0 says nothing.
        object.size_bytes = object.size_bytes.filter(|size| *size > 0 || !is_versitygw);
        let hint = Hint {
            bucket: self.bucket.name,
            key: if is_versitygw { bytes(text) } else { decode_key(text) },
            kind,
            order: parse_order(&object.sequencer).filter(|_| has_order),
            time: crate::aws::parse_time(&self.time),
            object: if describes_current_object(name) {
                object.describe(is_ceph)
            } else {
                ObjectDescription::default()
            },
        };
        check_names(hint).map(Some)
    }
}

impl<'a> Object<'a> {
    fn read_from(&mut self, json: &mut Json<'a>) -> Result<(), DialectError> {
        json.fields(|json, name| {
            match name {
                b"key" => self.key = json.text()?,
                b"size" => self.size_bytes = json.integer()?,
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

    fn describe(self, is_ceph: bool) -> ObjectDescription<'a> {
        ObjectDescription {
            size_bytes: self.size_bytes,
            etag: unquote_etag(self.etag),
            version: non_empty(self.version),
            content_type: non_empty(self.content_type),
            properties: match self.user {
                Some(user) => properties(user),
                None if self.metadata.is_empty() => None,
                None => properties(self.metadata),
            },
            // Ceph writes empty lists also when it has not looked for tags.
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

    /// Returns whether versitygw wrote the event. It calls itself AWS, but only it writes the whole path in the ARN.
    fn is_versitygw(&self) -> bool {
        self.arn.starts_with("arn:aws:s3:::/")
    }
}

/// Returns whether an event of this name describes the current object.
fn describes_current_object(name: &str) -> bool {
    name.starts_with("ObjectCreated:") || name.starts_with("ObjectTagging:")
}

/// Returns what a kind of event means; `None` if it is irrelevant here.
fn classify(name: &str, version: &str) -> Option<ChangeKind> {
    let (family, kind) = name.split_once(':').unwrap_or((name, ""));
    match (family, kind) {
        ("ObjectCreated", "PutTagging" | "DeleteTagging" | "PutRetention" | "PutLegalHold") => {
            Some(ChangeKind::Changed)
        }
        ("ObjectCreated", _) | ("ObjectSynced", "Create") => Some(ChangeKind::Stored),
        ("ObjectTagging" | "ObjectAcl", _) => Some(ChangeKind::Changed),
        // Only one version was removed, possibly not the current one; the event does not say what is current now.
        ("ObjectRemoved" | "LifecycleExpiration" | "ObjectSynced", "Delete") if !version.is_empty() => {
            Some(ChangeKind::Changed)
        }
        ("ObjectRemoved" | "LifecycleExpiration", _)
        | ("ObjectSynced", "Delete" | "DeletionMarkerCreated") => Some(ChangeKind::Removed),
        // Written by Ceph. The rest of the family concerns versions that are not current.
        ("ObjectLifecycle", "Expiration:Current") => Some(ChangeKind::Removed),
        ("ObjectAccessed", _) => Some(ChangeKind::Read),
        _ => None,
    }
}

/// Returns whether an event has a sequencer of its own. MinIO writes the object's sequencer, so a change of tags repeats the last one.
fn has_order(kind: ChangeKind, source: &str) -> bool {
    kind != ChangeKind::Changed || matches!(source, "aws:s3" | "ceph:s3")
}

/// Parses a `sequencer`: hexadecimal; shorter ones count as padded on the left. `None`: it is no number of at most 128
/// bits.
pub(super) fn parse_order(sequencer: &str) -> Option<Order> {
    u128::from_str_radix(sequencer, 16).ok().map(Order)
}

/// Returns an etag without its quotes; `None` if it is empty.
pub(super) fn unquote_etag(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    let text = non_empty(text)?;
    if !text.starts_with('"') {
        return Some(text);
    }
    Some(Cow::Owned(text.trim_matches('"').to_owned()))
}

/// Decodes a URL-encoded key.
fn decode_key(text: Cow<'_, str>) -> Cow<'_, [u8]> {
    let bytes = bytes(text);
    if !bytes.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        return bytes;
    }
    let spaced: Vec<u8> = bytes.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    Cow::Owned(percent_decode(&spaced).collect())
}

/// Returns the user metadata among headers; `None` if a value is encoded (RFC 2047).
fn properties(headers: Pairs<'_>) -> Option<Pairs<'_>> {
    if headers.iter().any(|(_, value)| value.starts_with(ENCODED_WORD)) {
        return None;
    }
    let named = |(name, value)| Some((without_prefix(name)?, value));
    Some(headers.into_iter().filter_map(named).collect())
}

/// Returns the name of user metadata in lower case without its prefix; `None` for other headers.
fn without_prefix(name: Cow<'_, str>) -> Option<Cow<'_, str>> {
    let (prefix, _) = name.split_at_checked(USER_PREFIX.len())?;
    if !prefix.eq_ignore_ascii_case(USER_PREFIX) {
        return None;
    }
    Some(to_lowercase(match name {
        Cow::Borrowed(name) => Cow::Borrowed(&name[USER_PREFIX.len()..]),
        Cow::Owned(name) => Cow::Owned(name[USER_PREFIX.len()..].to_owned()),
    }))
}
