//! The records of the log, and how they are encoded.
//!
//! A record is a header of the [log](SegmentedLog); the body is bytes of objects or a note. `docs/format.md` describes
//! the fields. The kind 6 is the log's own ([`SEGMENT_START`](log::segmented::SEGMENT_START)).

use crate::log_encoding::{Decoder, Encoder};
use log::{Segment, SegmentedLog, Space};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use store::{Attributes, ETag, ObjectKey, ObjectRef, Payload, Precondition, Tags, Timestamp};

/// A record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    /// The body holds bytes that a later record refers to.
    Bytes,
    /// The change stores an object.
    Put {
        /// Number of the change.
        change: u64,
        key: ObjectKey,
        /// Condition for the upload: what the bucket must have, which has not seen earlier pending changes.
        base: Precondition,
        object: ObjectDescription,
        extents: Vec<ExtentRecord>,
        /// The object of which this one is a copy, if it is renamed: its deletion follows.
        renamed_from: Option<Box<ObjectRef>>,
    },
    /// The change deletes a key.
    Delete { change: u64, key: ObjectKey, base: Precondition },
    /// The body is a note of another component, kept in order with the changes.
    Note { number: u64 },
    /// Notes up to this one are not needed any more.
    NotesDone { number: u64 },
    /// A change is not pending any more: the bucket has it, and the object has this etag there. Without an etag the
    /// change is a deletion, was set aside, or was cancelled by a later one.
    Done { change: u64, key: ObjectKey, etag: Option<ETag> },
}

/// Metadata of a pending object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObjectDescription {
    pub(super) etag: ETag,
    pub(super) stored_at: Timestamp,
    pub(super) attributes: Attributes,
    pub(super) tags: Tags,
}

/// Location of some bytes of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExtentRecord {
    /// The body of this record.
    Body,
    /// A range of a segment of the log.
    Log { segment: u64, range: Range<u64> },
    /// A range of an object in the bucket.
    Bucket { object: ObjectRef, range: Range<u64> },
}

/// Encodes a record as a header of the log.
pub(super) fn encode(record: &Record) -> Vec<u8> {
    let mut header = Encoder::default();
    header.record(record);
    header.0
}

/// Appends a record with a body to a log. Returns the range of the body. Notes may use the disk space that the log
/// reserves: without them the metadata engine could not go on.
pub(super) fn append(
    log: &SegmentedLog,
    record: &Record,
    body: &Payload,
) -> io::Result<(Arc<Segment>, Range<u64>)> {
    let space = match record {
        Record::Note { .. } => Space::Any,
        _ => Space::Unreserved,
    };
    log.append(&encode(record), body.pieces(), space)
}

/// Decodes the header of a whole record. Fails with `InvalidData` if a newer version wrote it.
pub(super) fn decode_whole(header: &[u8]) -> io::Result<Record> {
    let newer = "the write-back log was written by a newer version of Tenon";
    decode(header).ok_or_else(|| io::Error::new(ErrorKind::InvalidData, newer))
}

/// Decodes a header; `None` if it is damaged or of a newer version.
pub(super) fn decode(header: &[u8]) -> Option<Record> {
    let mut decoder = Decoder(header);
    let record = decoder.record()?;
    decoder.0.is_empty().then_some(record)
}

impl Encoder {
    /// Appends a record.
    fn record(&mut self, record: &Record) {
        match record {
            Record::Bytes => self.0.push(0),
            Record::Note { number } => self.numbered(4, *number),
            Record::NotesDone { number } => self.numbered(5, *number),
            Record::Put { change, key, base, object, extents, renamed_from } => {
                self.0.push(if renamed_from.is_some() { 7 } else { 1 });
                self.number(*change);
                self.bytes(key.as_bytes());
                self.precondition(base);
                self.object(object);
                self.number(extents.len() as u64);
                extents.iter().for_each(|extent| self.extent(extent));
                if let Some(from) = renamed_from {
                    self.bytes(from.key.as_bytes());
                    self.bytes(from.etag.as_str().as_bytes());
                }
            }
            Record::Delete { change, key, base } => {
                self.0.push(2);
                self.number(*change);
                self.bytes(key.as_bytes());
                self.precondition(base);
            }
            Record::Done { change, key, etag } => {
                self.0.push(3);
                self.number(*change);
                self.bytes(key.as_bytes());
                self.optional(etag.as_ref().map(ETag::as_str));
            }
        }
    }

    /// Appends a record that has only a kind and a number.
    fn numbered(&mut self, kind: u8, number: u64) {
        self.0.push(kind);
        self.number(number);
    }

    fn map(&mut self, map: &BTreeMap<String, String>) {
        self.number(map.len() as u64);
        for (name, value) in map {
            self.bytes(name.as_bytes());
            self.bytes(value.as_bytes());
        }
    }

    fn object(&mut self, object: &ObjectDescription) {
        self.bytes(object.etag.as_str().as_bytes());
        self.number(object.stored_at.0 as u64);
        self.optional(object.attributes.content_type.as_deref());
        self.map(&object.attributes.system);
        self.map(&object.attributes.user);
        self.optional(object.attributes.storage_class.as_deref());
        self.map(&object.tags);
    }

    fn extent(&mut self, extent: &ExtentRecord) {
        match extent {
            ExtentRecord::Body => self.0.push(2),
            ExtentRecord::Log { segment, range } => {
                self.0.push(0);
                self.number(*segment);
                self.number(range.start);
                self.number(range.end);
            }
            ExtentRecord::Bucket { object, range } => {
                self.0.push(1);
                self.bytes(object.key.as_bytes());
                self.bytes(object.etag.as_str().as_bytes());
                self.optional(object.version.as_deref());
                self.number(range.start);
                self.number(range.end);
            }
        }
    }
}

impl Decoder<'_> {
    fn record(&mut self) -> Option<Record> {
        match self.byte()? {
            0 => Some(Record::Bytes),
            kind @ (1 | 7) => {
                let (change, key) = (self.number()?, self.key()?);
                let (base, object) = (self.precondition()?, self.object()?);
                let count = self.number()?;
                let extents = (0..count).map(|_| self.extent()).collect::<Option<_>>()?;
                let renamed_from = match kind {
                    7 => Some(Box::new(ObjectRef::new(self.key()?, ETag::new(&self.text()?)))),
                    _ => None,
                };
                Some(Record::Put { change, key, base, object, extents, renamed_from })
            }
            2 => {
                Some(Record::Delete { change: self.number()?, key: self.key()?, base: self.precondition()? })
            }
            3 => Some(Record::Done {
                change: self.number()?,
                key: self.key()?,
                etag: self.optional()?.map(|text| ETag::new(&text)),
            }),
            4 => Some(Record::Note { number: self.number()? }),
            5 => Some(Record::NotesDone { number: self.number()? }),
            _ => None,
        }
    }

    fn map(&mut self) -> Option<BTreeMap<String, String>> {
        let count = self.number()?;
        (0..count).map(|_| Some((self.text()?, self.text()?))).collect()
    }

    fn object(&mut self) -> Option<ObjectDescription> {
        Some(ObjectDescription {
            etag: ETag::new(&self.text()?),
            stored_at: Timestamp(self.number()? as i64),
            attributes: Attributes {
                content_type: self.optional()?,
                system: self.map()?,
                user: self.map()?,
                storage_class: self.optional()?,
            },
            tags: self.map()?,
        })
    }

    fn extent(&mut self) -> Option<ExtentRecord> {
        match self.byte()? {
            0 => Some(ExtentRecord::Log { segment: self.number()?, range: self.number()?..self.number()? }),
            1 => {
                let (key, etag) = (self.key()?, ETag::new(&self.text()?));
                let version = self.optional()?.map(Into::into);
                let object = ObjectRef { key, etag, version, last_modified: None };
                Some(ExtentRecord::Bucket { object, range: self.number()?..self.number()? })
            }
            2 => Some(ExtentRecord::Body),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record> {
        let key = ObjectKey::try_from(&b"a//\xff"[..]).unwrap();
        let put = |renamed_from| Record::Put {
            change: 7,
            key: key.clone(),
            base: Precondition::Matches(ETag::new("x")),
            object: description(),
            extents: extents(&key),
            renamed_from,
        };
        vec![
            Record::Bytes,
            put(None),
            put(Some(Box::new(ObjectRef::new(key.clone(), ETag::new("old"))))),
            Record::Note { number: 3 },
            Record::NotesDone { number: 9 },
            Record::Delete { change: 8, key: key.clone(), base: Precondition::Absent },
            Record::Done { change: 8, key, etag: None },
        ]
    }

    fn description() -> ObjectDescription {
        let text = |text: &str| text.to_owned();
        ObjectDescription {
            etag: ETag::new("e"),
            stored_at: Timestamp(-5),
            attributes: Attributes {
                content_type: Some(text("t")),
                system: BTreeMap::from([(text("a"), text("b"))]),
                user: BTreeMap::from([(text("ü"), text(""))]),
                storage_class: None,
            },
            tags: BTreeMap::from([(text("tag"), text("value"))]),
        }
    }

    fn extents(key: &ObjectKey) -> Vec<ExtentRecord> {
        let object = ObjectRef { version: Some("v".into()), ..ObjectRef::new(key.clone(), ETag::new("e")) };
        vec![
            ExtentRecord::Body,
            ExtentRecord::Log { segment: 3, range: 5..9 },
            ExtentRecord::Bucket { object, range: 0..u64::MAX },
        ]
    }

    #[test]
    fn records_are_decoded_and_incomplete_ones_are_not() {
        for record in records() {
            let header = encode(&record);
            assert_ne!(header[0], log::segmented::SEGMENT_START);
            for end in 0..header.len() {
                assert_eq!(decode(&header[..end]), None);
            }
            assert_eq!(decode(&header), Some(record));
        }
    }
}
