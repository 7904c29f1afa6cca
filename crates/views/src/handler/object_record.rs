//! The known state of an object, and its packed form.
//!
//! Owns the packed record, which memory and files share (docs/format.md, "Records of objects").

use std::borrow::Cow;
use std::collections::BTreeMap;
use store::{ETag, Timestamp};

/// The known state of an object, or its tombstone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ObjectRecord<'a> {
    pub(super) key: &'a [u8],
    /// Order of the last hint that was applied; `None` if the state comes from the store, without a hint.
    pub(super) order: Option<u128>,
    /// `None`: the object is absent.
    pub(super) live: Option<LiveObject<'a>>,
}

/// The known state of an object that exists. A field that is not known is `None`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LiveObject<'a> {
    pub(super) size_bytes: u64,
    pub(super) modified: Timestamp,
    pub(super) etag: &'a str,
    /// Time of the last read.
    pub(super) accessed: Option<Timestamp>,
    /// `Some(None)`: the object is known to have no type.
    pub(super) content_type: Option<Option<&'a str>>,
    pub(super) properties: Option<Pairs<'a>>,
    pub(super) tags: Option<Pairs<'a>>,
}

/// Names and values, in one of three representations.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pairs<'a> {
    List(&'a [(Cow<'a, str>, Cow<'a, str>)]),
    Map(&'a BTreeMap<String, String>),
    Packed(&'a [u8]),
}

const IS_LIVE: u8 = 1;
const HAS_ORDER: u8 = 1 << 1;
const HAS_ACCESSED: u8 = 1 << 2;
const HAS_TYPE: u8 = 1 << 3;
const HAS_NO_TYPE: u8 = 1 << 4;
const HAS_PROPERTIES: u8 = 1 << 5;
const HAS_TAGS: u8 = 1 << 6;

impl<'a> ObjectRecord<'a> {
    /// Appends the packed record.
    pub(super) fn pack(&self, into: &mut Vec<u8>) {
        into.push(self.flags());
        put_bytes(into, self.key);
        if let Some(order) = self.order {
            into.extend_from_slice(&order.to_le_bytes());
        }
        if let Some(live) = &self.live {
            live.pack(into);
        }
    }

    fn flags(&self) -> u8 {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let live = self.live.as_ref().map_or(0, |live| {
            IS_LIVE
                | flag(live.accessed.is_some(), HAS_ACCESSED)
                | flag(matches!(live.content_type, Some(Some(_))), HAS_TYPE)
                | flag(matches!(live.content_type, Some(None)), HAS_NO_TYPE)
                | flag(live.properties.is_some(), HAS_PROPERTIES)
                | flag(live.tags.is_some(), HAS_TAGS)
        });
        live | flag(self.order.is_some(), HAS_ORDER)
    }

    /// Reads a packed record; `None` if the bytes are malformed.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = ByteReader(bytes);
        let flags = rest.take(1)?[0];
        let key = rest.bytes()?;
        let order = if flags & HAS_ORDER != 0 { Some(rest.array().map(u128::from_le_bytes)?) } else { None };
        let live = if flags & IS_LIVE != 0 { Some(LiveObject::read(flags, &mut rest)?) } else { None };
        rest.0.is_empty().then_some(Self { key, order, live })
    }
}

/// Returns the key of a packed record, without reading the rest.
pub(super) fn key_of(record: &[u8]) -> &[u8] {
    let mut rest = ByteReader(record);
    rest.take(1).and_then(|_| rest.bytes()).unwrap_or_default()
}

impl<'a> LiveObject<'a> {
    fn pack(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.size_bytes.to_le_bytes());
        into.extend_from_slice(&self.modified.0.to_le_bytes());
        put_str(into, self.etag);
        if let Some(accessed) = self.accessed {
            into.extend_from_slice(&accessed.0.to_le_bytes());
        }
        if let Some(Some(content_type)) = self.content_type {
            put_str(into, content_type);
        }
        for pairs in [self.properties, self.tags].into_iter().flatten() {
            pairs.pack(into);
        }
    }

    fn read(flags: u8, rest: &mut ByteReader<'a>) -> Option<Self> {
        let has = |flag: u8| flags & flag != 0;
        Some(Self {
            size_bytes: u64::from_le_bytes(rest.array()?),
            modified: Timestamp(i64::from_le_bytes(rest.array()?)),
            etag: rest.str()?,
            accessed: if has(HAS_ACCESSED) {
                Some(Timestamp(i64::from_le_bytes(rest.array()?)))
            } else {
                None
            },
            content_type: match (has(HAS_TYPE), has(HAS_NO_TYPE)) {
                (true, _) => Some(Some(rest.str()?)),
                (false, is_known) => is_known.then_some(None),
            },
            properties: if has(HAS_PROPERTIES) { Some(rest.pairs()?) } else { None },
            tags: if has(HAS_TAGS) { Some(rest.pairs()?) } else { None },
        })
    }
}

impl<'a> Pairs<'a> {
    /// Returns the value of a name.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        match self {
            Self::List(pairs) => {
                pairs.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_ref())
            }
            Self::Map(map) => map.get(name).map(String::as_str),
            Self::Packed(_) => {
                let mut found = None;
                self.for_each(|(is, value)| found = found.or((is == name).then_some(value)));
                found
            }
        }
    }

    pub(super) fn to_map(self) -> BTreeMap<String, String> {
        let mut map = BTreeMap::new();
        self.for_each(|(name, value)| {
            map.insert(name.to_owned(), value.to_owned());
        });
        map
    }

    fn for_each(self, mut see: impl FnMut((&'a str, &'a str))) {
        match self {
            Self::List(pairs) => pairs.iter().for_each(|(name, value)| see((name, value))),
            Self::Map(map) => map.iter().for_each(|(name, value)| see((name, value))),
            Self::Packed(bytes) => {
                let mut rest = ByteReader(bytes);
                while let (Some(name), Some(value)) = (rest.str(), rest.str()) {
                    see((name, value));
                }
            }
        }
    }

    fn pack(self, into: &mut Vec<u8>) {
        let at = into.len();
        into.extend_from_slice(&[0; 4]);
        self.for_each(|(name, value)| {
            put_str(into, name);
            put_str(into, value);
        });
        let bytes = (into.len() - at - 4) as u32;
        into[at..at + 4].copy_from_slice(&bytes.to_le_bytes());
    }
}

/// Two sets of pairs are equal if their names and values are, whatever their representation.
impl PartialEq for Pairs<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Packed(left), Self::Packed(right)) if left == right => true,
            _ => self.to_map() == other.to_map(),
        }
    }
}

/// Appends the length and bytes of a text, truncated to 65,535 bytes. Texts that S3 allows are shorter.
fn put_str(into: &mut Vec<u8>, string: &str) {
    put_bytes(into, &string.as_bytes()[..string.floor_char_boundary(usize::from(u16::MAX))]);
}

/// Appends the length and content of at most 65,535 bytes.
pub(super) fn put_bytes(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    into.extend_from_slice(bytes);
}

/// Reads bytes from the front; holds those that are left.
pub(super) struct ByteReader<'a>(pub(super) &'a [u8]);

impl<'a> ByteReader<'a> {
    pub(super) fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        self.take(BYTES)?.try_into().ok()
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let bytes = u16::from_le_bytes(self.array()?);
        self.take(usize::from(bytes))
    }

    pub(super) fn str(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    fn pairs(&mut self) -> Option<Pairs<'a>> {
        let bytes = u32::from_le_bytes(self.array()?);
        self.take(bytes as usize).map(Pairs::Packed)
    }
}

impl LiveObject<'_> {
    pub(super) fn etag(&self) -> ETag {
        ETag::new(self.etag)
    }

    /// Returns whether metadata is known, which a listing does not show.
    pub(super) fn has_metadata(&self) -> bool {
        self.content_type.is_some() || self.properties.is_some() || self.tags.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_packing() {
        let map = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), String::new())]);
        let live = LiveObject {
            size_bytes: 7,
            modified: Timestamp(-5),
            etag: "d41d8cd98f00b204e9800998ecf8427e",
            accessed: Some(Timestamp(9)),
            content_type: Some(Some("text/plain")),
            properties: Some(Pairs::Map(&map)),
            tags: None,
        };
        let none = LiveObject { accessed: None, content_type: Some(None), properties: None, ..live };
        for live in [Some(live), Some(none), None] {
            for order in [None, Some(u128::MAX)] {
                let known = ObjectRecord { key: b"k\xff", order, live };
                let mut bytes = Vec::new();
                known.pack(&mut bytes);
                assert_eq!(ObjectRecord::read(&bytes), Some(known));
                assert_eq!(key_of(&bytes), b"k\xff");
                for cut in 0..bytes.len() {
                    assert_eq!(ObjectRecord::read(&bytes[..cut]), None, "{cut}");
                }
            }
        }
    }
}
