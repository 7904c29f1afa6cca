//! The records of the log, and how they are encoded.
//!
//! A frame is: magic (4 bytes), CRC-32C of the lengths, header and body (4), header length (4), body length (8),
//! CRC-32C of the frame's position and of everything before (4), header, body; numbers are little-endian. Frames of
//! older versions, and the first frame of each segment, have another magic and no checksum of the position. The
//! header is the encoded record; the body is bytes of objects or a note. `docs/format.md` describes the fields.

use crate::log_encoding::{Crc, Decoder, Encoder};
use std::collections::BTreeMap;
use std::ops::Range;
use store::{Attributes, ETag, ObjectKey, ObjectRef, Precondition, Tags, Timestamp};

/// Magic of frames with a checksum of their position.
pub(super) const MAGIC_V2: [u8; 4] = *b"TWB2";
/// Magic of frames without one.
const MAGIC_V1: [u8; 4] = *b"TWB1";
/// Length of a head without the checksum of its position, in bytes. A head with one has the checksum at this offset.
pub(super) const HEAD_V1_BYTES: usize = 20;
/// Length of a head with a checksum of its position, in bytes.
pub(super) const HEAD_V2_BYTES: usize = 24;
/// Maximum header length: attributes have 2 KB, and an object of 10,000 parts as many extents.
const HEADER_BYTES_MAX: usize = 64 << 20;

/// A record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    /// The body holds bytes that a later record refers to.
    Bytes,
    /// An object was stored.
    Put {
        /// Number of the change.
        change: u64,
        key: ObjectKey,
        /// Condition for the upload: what the bucket must have, which has not seen earlier pending changes.
        base: Precondition,
        object: ObjectDescription,
        extents: Vec<ExtentRecord>,
    },
    /// A key was deleted.
    Delete { change: u64, key: ObjectKey, base: Precondition },
    /// The body is a note of another component, kept in order with the changes.
    Note { number: u64 },
    /// Notes up to this one are not needed any more.
    NotesDone { number: u64 },
    /// A change is not pending any more: the bucket has it, and the object has this etag there.
    Done { change: u64, key: ObjectKey, etag: Option<ETag> },
    /// The first record of a segment: the number of the segment before and where that ended then.
    SegmentStart { previous: u64, end: u64 },
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

/// Encodes the head and header of a record with a body. [`set_position`] completes the frame.
pub(super) fn encode(record: &Record, body: &[&[u8]]) -> Vec<u8> {
    let mut header = Encoder::default();
    header.record(record);
    let body_bytes: u64 = body.iter().map(|piece| piece.len() as u64).sum();
    let mut frame = Vec::with_capacity(HEAD_V2_BYTES + header.0.len());
    frame.extend(MAGIC_V2);
    frame.extend([0; 4]);
    frame.extend((header.0.len() as u32).to_le_bytes());
    frame.extend(body_bytes.to_le_bytes());
    frame.extend([0; 4]);
    let mut crc = Crc::default();
    crc.add(&frame[8..HEAD_V1_BYTES]);
    crc.add(&header.0);
    body.iter().for_each(|piece| crc.add(piece));
    frame[4..8].copy_from_slice(&crc.sum().to_le_bytes());
    frame.extend(header.0);
    frame
}

/// Writes the checksum of its position into an encoded frame.
pub(super) fn set_position(frame: &mut [u8], segment: u64, at: u64) {
    let check = position_check(&frame[..HEAD_V1_BYTES], segment, at);
    frame[HEAD_V1_BYTES..HEAD_V2_BYTES].copy_from_slice(&check);
}

/// Encodes the first frame of a segment. Versions before this format refuse the unknown record as one of a newer
/// version.
pub(super) fn encode_segment_start(previous: u64, end: u64) -> Vec<u8> {
    let mut frame = encode(&Record::SegmentStart { previous, end }, &[]);
    frame[..4].copy_from_slice(&MAGIC_V1);
    frame.drain(HEAD_V1_BYTES..HEAD_V2_BYTES);
    frame
}

fn position_check(head: &[u8], segment: u64, at: u64) -> [u8; 4] {
    let mut crc = Crc::default();
    crc.add(&segment.to_le_bytes());
    crc.add(&at.to_le_bytes());
    crc.add(head);
    crc.sum().to_le_bytes()
}

/// A decoded head of a frame.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) head_bytes: usize,
    pub(super) header_bytes: usize,
    body_bytes: u64,
    pub(super) checksum: u32,
    /// The encoded lengths.
    pub(super) lengths: [u8; 12],
    /// The head is undamaged and was written for this position.
    pub(super) is_position_valid: bool,
}

impl Head {
    /// Returns the end of a frame that begins at an offset.
    pub(super) fn end(&self, at: u64) -> Option<u64> {
        at.checked_add((self.head_bytes + self.header_bytes) as u64)?.checked_add(self.body_bytes)
    }
}

/// Decodes a head, the likeliest form first: a damaged magic leaves both forms possible.
pub(super) fn parse_heads(bytes: &[u8], segment: u64, at: u64) -> Vec<Head> {
    let is_position_valid = bytes.get(HEAD_V1_BYTES..HEAD_V2_BYTES).is_some_and(|check| {
        bytes.starts_with(&MAGIC_V2) && *check == position_check(&bytes[..HEAD_V1_BYTES], segment, at)
    });
    let forms: &[usize] = match bytes {
        [b'T', b'W', b'B', b'2', ..] => &[HEAD_V2_BYTES],
        [b'T', b'W', b'B', b'1', ..] => &[HEAD_V1_BYTES],
        _ => &[HEAD_V2_BYTES, HEAD_V1_BYTES],
    };
    let head = |head_bytes: &usize| {
        let lengths: [u8; 12] = bytes.get(8..HEAD_V1_BYTES)?.try_into().ok()?;
        let header_bytes = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?) as usize;
        let body_bytes = u64::from_le_bytes(bytes.get(12..HEAD_V1_BYTES)?.try_into().ok()?);
        let checksum = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
        let head =
            Head { head_bytes: *head_bytes, header_bytes, body_bytes, checksum, lengths, is_position_valid };
        (header_bytes <= HEADER_BYTES_MAX).then_some(head)
    };
    forms.iter().filter_map(head).collect()
}

/// Decodes a header; `None` if it is damaged or of a newer version.
pub(super) fn decode(header: &[u8]) -> Option<Record> {
    let mut decoder = Decoder(header);
    let record = decoder.record()?;
    decoder.0.is_empty().then_some(record)
}

impl Encoder {
    fn record(&mut self, record: &Record) {
        match record {
            Record::Bytes => self.0.push(0),
            Record::Note { number } => self.numbered(4, *number),
            Record::NotesDone { number } => self.numbered(5, *number),
            Record::SegmentStart { previous, end } => {
                self.numbered(6, *previous);
                self.number(*end);
            }
            Record::Put { change, key, base, object, extents } => {
                self.0.push(1);
                self.number(*change);
                self.bytes(key.as_bytes());
                self.precondition(base);
                self.object(object);
                self.number(extents.len() as u64);
                extents.iter().for_each(|extent| self.extent(extent));
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
            1 => {
                let (change, key) = (self.number()?, self.key()?);
                let (base, object) = (self.precondition()?, self.object()?);
                let count = self.number()?;
                let extents = (0..count).map(|_| self.extent()).collect::<Option<_>>()?;
                Some(Record::Put { change, key, base, object, extents })
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
            6 => Some(Record::SegmentStart { previous: self.number()?, end: self.number()? }),
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
        let text = |text: &str| text.to_owned();
        let object = ObjectRef {
            key: key.clone(),
            etag: ETag::new("e"),
            version: Some("v".into()),
            last_modified: None,
        };
        vec![
            Record::Bytes,
            Record::Put {
                change: 7,
                key: key.clone(),
                base: Precondition::Matches(ETag::new("x")),
                object: ObjectDescription {
                    etag: ETag::new("e"),
                    stored_at: Timestamp(-5),
                    attributes: Attributes {
                        content_type: Some(text("t")),
                        system: BTreeMap::from([(text("a"), text("b"))]),
                        user: BTreeMap::from([(text("ü"), text(""))]),
                        storage_class: None,
                    },
                    tags: BTreeMap::from([(text("tag"), text("value"))]),
                },
                extents: vec![
                    ExtentRecord::Body,
                    ExtentRecord::Log { segment: 3, range: 5..9 },
                    ExtentRecord::Bucket { object, range: 0..u64::MAX },
                ],
            },
            Record::Note { number: 3 },
            Record::NotesDone { number: 9 },
            Record::Delete { change: 8, key: key.clone(), base: Precondition::Absent },
            Record::Done { change: 8, key, etag: None },
            Record::SegmentStart { previous: 4, end: 77 },
        ]
    }

    #[test]
    fn records_are_decoded_and_damage_is_detected() {
        for record in records() {
            let mut frame = encode(&record, &[b"bo", b"dy"]);
            set_position(&mut frame, 5, 60);
            let header = &frame[HEAD_V2_BYTES..];
            assert!(
                !parse_heads(&frame, 5, 61)[0].is_position_valid
                    && !parse_heads(&frame, 6, 60)[0].is_position_valid
            );
            let [head] = &parse_heads(&frame, 5, 60)[..] else { panic!() };
            assert!(head.is_position_valid && head.header_bytes == header.len());
            assert_eq!(head.end(60), Some(60 + frame.len() as u64 + 4));
            assert_eq!(decode(header), Some(record));
            let mut crc = Crc::default();
            crc.add(&head.lengths);
            crc.add(header);
            crc.add(b"body");
            assert_eq!(head.checksum, crc.sum());
            for end in 0..header.len() {
                assert_eq!(decode(&header[..end]), None);
            }
        }
    }
}
