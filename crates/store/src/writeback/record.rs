//! What the log says, record by record.
//!
//! A frame is: magic (4 bytes), CRC-32C of all that follows (4), header length (4), body length (8), header, body; numbers
//! little-endian. The header says what was asked, the body is bytes that objects consist of. `docs/format.md` has the
//! fields.

use crate::wire::{Crc, Sink, Source};
use crate::{Attributes, ETag, ObjectKey, ObjectRef, Precondition, Tags, Timestamp};
use std::collections::BTreeMap;
use std::ops::Range;

const MAGIC: [u8; 4] = *b"TWB1";
/// Length of what comes before header and body.
pub(super) const FRAME_BYTES: usize = 20;
/// No header is longer: attributes have 2 KB, and an object of 10,000 parts as many pieces.
const HEADER_BYTES_MAX: usize = 64 << 20;

/// One step of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    /// The body is bytes that a later record refers to.
    Bytes,
    /// An object was stored.
    Put {
        /// Which change.
        change: u64,
        key: ObjectKey,
        /// What must hold in the bucket, which has not seen earlier changes that wait.
        base: Precondition,
        object: Described,
        pieces: Vec<PieceAt>,
    },
    /// A key was deleted.
    Delete { change: u64, key: ObjectKey, base: Precondition },
    /// The body is somebody else's, who wants it kept in order with the changes.
    Note { number: u64 },
    /// Notes up to this one are not needed any more.
    NotesDone { number: u64 },
    /// A change is in the bucket; the object has this tag there.
    Done { change: u64, key: ObjectKey, etag: Option<ETag> },
}

/// A pending object without its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) etag: ETag,
    pub(super) stored_at: Timestamp,
    pub(super) attributes: Attributes,
    pub(super) tags: Tags,
}

/// Where a piece of an object is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PieceAt {
    /// The body of this very record.
    Body,
    /// In a segment of the log.
    Here { segment: u64, range: Range<u64> },
    /// In an object of the bucket.
    There { object: ObjectRef, range: Range<u64> },
}

/// The frame and header of a record with a body of so many bytes, whose CRC is completed by `body`.
pub(super) fn encode(record: &Record, body: &[&[u8]]) -> Vec<u8> {
    let mut header = Sink::default();
    header.record(record);
    let body_bytes: u64 = body.iter().map(|piece| piece.len() as u64).sum();
    let mut checked = Vec::with_capacity(12 + header.0.len());
    checked.extend((header.0.len() as u32).to_le_bytes());
    checked.extend(body_bytes.to_le_bytes());
    checked.extend(&header.0);
    let mut crc = Crc::default();
    crc.add(&checked);
    body.iter().for_each(|piece| crc.add(piece));
    [&MAGIC[..], &crc.sum().to_le_bytes(), &checked].concat()
}

/// The lengths of header and body, from the beginning of a frame; `None`: this is no frame.
pub(super) fn lengths(frame: &[u8; FRAME_BYTES]) -> Option<(usize, u64)> {
    let header = u32::from_le_bytes(frame[8..12].try_into().ok()?) as usize;
    let body = u64::from_le_bytes(frame[12..20].try_into().ok()?);
    (frame[..4] == MAGIC && header <= HEADER_BYTES_MAX).then_some((header, body))
}

/// The checksum that a frame says.
pub(super) fn checksum(frame: &[u8; FRAME_BYTES]) -> u32 {
    u32::from_le_bytes([frame[4], frame[5], frame[6], frame[7]])
}

/// The record of a header; `None` if it is damaged, or of a newer Tenon.
pub(super) fn decode(header: &[u8]) -> Option<Record> {
    let mut source = Source(header);
    let record = source.record()?;
    source.0.is_empty().then_some(record)
}

impl Sink {
    fn record(&mut self, record: &Record) {
        match record {
            Record::Bytes => self.0.push(0),
            Record::Note { number } => self.numbered(4, *number),
            Record::NotesDone { number } => self.numbered(5, *number),
            Record::Put { change, key, base, object, pieces } => {
                self.0.push(1);
                self.number(*change);
                self.bytes(key.as_bytes());
                self.precondition(base);
                self.described(object);
                self.number(pieces.len() as u64);
                pieces.iter().for_each(|piece| self.piece(piece));
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

    fn described(&mut self, object: &Described) {
        self.bytes(object.etag.as_str().as_bytes());
        self.number(object.stored_at.0 as u64);
        self.optional(object.attributes.content_type.as_deref());
        self.map(&object.attributes.system);
        self.map(&object.attributes.user);
        self.optional(object.attributes.storage_class.as_deref());
        self.map(&object.tags);
    }

    fn piece(&mut self, piece: &PieceAt) {
        match piece {
            PieceAt::Body => self.0.push(2),
            PieceAt::Here { segment, range } => {
                self.0.push(0);
                self.number(*segment);
                self.number(range.start);
                self.number(range.end);
            }
            PieceAt::There { object, range } => {
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

impl Source<'_> {
    fn record(&mut self) -> Option<Record> {
        match self.byte()? {
            0 => Some(Record::Bytes),
            1 => {
                let (change, key) = (self.number()?, self.key()?);
                let (base, object) = (self.precondition()?, self.described()?);
                let count = self.number()?;
                let pieces = (0..count).map(|_| self.piece()).collect::<Option<_>>()?;
                Some(Record::Put { change, key, base, object, pieces })
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

    fn described(&mut self) -> Option<Described> {
        Some(Described {
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

    fn piece(&mut self) -> Option<PieceAt> {
        match self.byte()? {
            0 => Some(PieceAt::Here { segment: self.number()?, range: self.number()?..self.number()? }),
            1 => {
                let (key, etag) = (self.key()?, ETag::new(&self.text()?));
                let version = self.optional()?.map(Into::into);
                let object = ObjectRef { key, etag, version, last_modified: None };
                Some(PieceAt::There { object, range: self.number()?..self.number()? })
            }
            2 => Some(PieceAt::Body),
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
                object: Described {
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
                pieces: vec![
                    PieceAt::Body,
                    PieceAt::Here { segment: 3, range: 5..9 },
                    PieceAt::There { object, range: 0..u64::MAX },
                ],
            },
            Record::Note { number: 3 },
            Record::NotesDone { number: 9 },
            Record::Delete { change: 8, key: key.clone(), base: Precondition::Absent },
            Record::Done { change: 8, key, etag: None },
        ]
    }

    #[test]
    fn records_come_back_and_damage_is_seen() {
        for record in records() {
            let frame = encode(&record, &[b"bo", b"dy"]);
            let (head, header) = frame.split_first_chunk::<FRAME_BYTES>().unwrap();
            assert_eq!(lengths(head), Some((header.len(), 4)));
            assert_eq!(decode(header), Some(record));
            let mut crc = Crc::default();
            crc.add(&frame[8..]);
            crc.add(b"body");
            assert_eq!(checksum(head), crc.sum());
            for end in 0..header.len() {
                assert_eq!(decode(&header[..end]), None);
            }
        }
    }
}
