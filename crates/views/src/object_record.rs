//! The known state of an object, and its packed form.
//!
//! Owns the packed record, in two forms: that of files (docs/format.md, "Records of objects"), and that of memory, in which the etag
//! of 32 hexadecimal digits has 16 bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use store::{ETag, Timestamp};

/// The known state of an object, or its tombstone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ObjectRecord<'a> {
    pub(crate) key: &'a [u8],
    /// Order of the last hint that was applied; `None` if the state comes from the store, without a hint.
    pub(crate) order: Option<u128>,
    /// `None`: the object is absent.
    pub(crate) live: Option<LiveObject<'a>>,
}

/// The known state of an object that exists. A field that is not known is `None`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LiveObject<'a> {
    pub(crate) size_bytes: u64,
    pub(crate) modified: Timestamp,
    pub(crate) etag: EtagRef<'a>,
    /// Time of the last read.
    pub(crate) accessed: Option<Timestamp>,
    /// `Some(None)`: the object is known to have no type.
    pub(crate) content_type: Option<Option<&'a str>>,
    pub(crate) properties: Option<Pairs<'a>>,
    pub(crate) tags: Option<Pairs<'a>>,
}

/// An entity tag. Tags that are equal as text are equal: [`EtagRef::from`] chooses the form by the text alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EtagRef<'a> {
    /// The bytes that 32 lower-case hexadecimal digits stand for.
    Digits([u8; 16]),
    /// Any other text.
    Text(&'a str),
}

/// Names and values, in one of three representations.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pairs<'a> {
    /// Those of a hint.
    List(&'a [(Cow<'a, str>, Cow<'a, str>)]),
    Map(&'a BTreeMap<String, String>),
    /// Those of a packed record, as its bytes.
    Packed(&'a [u8]),
}

// The bits of the first byte of a packed record say which of the fields follow.
/// The object exists; without this bit the record is a tombstone.
const IS_LIVE: u8 = 1;
const HAS_ORDER: u8 = 1 << 1;
const HAS_ACCESSED: u8 = 1 << 2;
const HAS_TYPE: u8 = 1 << 3;
/// The object is known to have no content type. Without this bit and [`HAS_TYPE`], the type is not known.
const HAS_NO_TYPE: u8 = 1 << 4;
const HAS_PROPERTIES: u8 = 1 << 5;
const HAS_TAGS: u8 = 1 << 6;
/// The etag is the 16 bytes of [`EtagRef::Digits`] instead of a text. Never set in files.
const HAS_ETAG_DIGITS: u8 = 1 << 7;

impl<'a> ObjectRecord<'a> {
    /// Appends the record in the form of memory.
    pub(crate) fn pack(&self, into: &mut Vec<u8>) {
        match self.live {
            Some(LiveObject { etag: EtagRef::Digits(_), .. }) => self.pack_with(HAS_ETAG_DIGITS, into),
            _ => self.pack_with(0, into),
        }
    }

    /// Appends a packed record in the form of files.
    pub(crate) fn pack_for_file(record: &'a [u8], into: &mut Vec<u8>) {
        match Self::read(record).filter(|_| record[0] & HAS_ETAG_DIGITS != 0) {
            Some(known) => known.pack_with(0, into),
            None => into.extend_from_slice(record),
        }
    }

    fn pack_with(&self, etag_form: u8, into: &mut Vec<u8>) {
        into.push(self.flags() | etag_form);
        put_bytes(into, self.key);
        if let Some(order) = self.order {
            into.extend_from_slice(&order.to_le_bytes());
        }
        if let Some(live) = &self.live {
            live.pack(etag_form, into);
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
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = ByteReader(bytes);
        let flags = rest.take(1)?[0];
        let key = rest.bytes()?;
        let order = if flags & HAS_ORDER != 0 { Some(rest.array().map(u128::from_le_bytes)?) } else { None };
        let live = if flags & IS_LIVE != 0 { Some(LiveObject::read(flags, &mut rest)?) } else { None };
        rest.0.is_empty().then_some(Self { key, order, live })
    }
}

/// Returns the key of a packed record, without reading the rest; empty if the bytes are malformed.
pub(crate) fn key_of(record: &[u8]) -> &[u8] {
    let mut rest = ByteReader(record);
    rest.take(1).and_then(|_| rest.bytes()).unwrap_or_default()
}

impl<'a> LiveObject<'a> {
    fn pack(&self, etag_form: u8, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.size_bytes.to_le_bytes());
        into.extend_from_slice(&self.modified.0.to_le_bytes());
        match self.etag {
            EtagRef::Digits(bytes) if etag_form == HAS_ETAG_DIGITS => into.extend_from_slice(&bytes),
            EtagRef::Digits(bytes) => put_str(into, &store::hex(&bytes)),
            EtagRef::Text(text) => put_str(into, text),
        }
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
            etag: match has(HAS_ETAG_DIGITS) {
                true => EtagRef::Digits(rest.array()?),
                false => EtagRef::from(rest.str()?),
            },
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

impl<'a> From<&'a str> for EtagRef<'a> {
    fn from(text: &'a str) -> Self {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 16];
        let Ok(digits) = <&[u8; 32]>::try_from(text.as_bytes()) else { return Self::Text(text) };
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else { return Self::Text(text) };
            *byte = high << 4 | low;
        }
        Self::Digits(bytes)
    }
}

impl From<EtagRef<'_>> for ETag {
    fn from(etag: EtagRef<'_>) -> Self {
        match etag {
            EtagRef::Digits(bytes) => Self::new(&store::hex(&bytes)),
            EtagRef::Text(text) => Self::new(text),
        }
    }
}

impl<'a> Pairs<'a> {
    /// Returns the value of a name; `None` if there is none.
    pub(crate) fn get(&self, name: &str) -> Option<&'a str> {
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

    pub(crate) fn to_map(self) -> BTreeMap<String, String> {
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

/// Appends the length, in two bytes, and the bytes, of which there must be at most 65,535.
pub(crate) fn put_bytes(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    into.extend_from_slice(bytes);
}

/// Reads values from the front of bytes; holds those that are left. Each read returns `None` if too few are left.
pub(crate) struct ByteReader<'a>(pub(crate) &'a [u8]);

impl<'a> ByteReader<'a> {
    pub(crate) fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn array<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        self.take(BYTES)?.try_into().ok()
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let bytes = u16::from_le_bytes(self.array()?);
        self.take(usize::from(bytes))
    }

    pub(crate) fn str(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    fn pairs(&mut self) -> Option<Pairs<'a>> {
        let bytes = u32::from_le_bytes(self.array()?);
        self.take(bytes as usize).map(Pairs::Packed)
    }
}

impl LiveObject<'_> {
    /// Returns whether metadata is known, which a listing does not show.
    pub(crate) fn has_metadata(&self) -> bool {
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
            etag: "d41d8cd98f00b204e9800998ecf8427e".into(),
            accessed: Some(Timestamp(9)),
            content_type: Some(Some("text/plain")),
            properties: Some(Pairs::Map(&map)),
            tags: None,
        };
        let etag = "D41D8CD98F00B204E9800998ECF8427E".into();
        let none = LiveObject { etag, accessed: None, content_type: Some(None), properties: None, ..live };
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
                let mut in_file = Vec::new();
                ObjectRecord::pack_for_file(&bytes, &mut in_file);
                assert_eq!(ObjectRecord::read(&in_file), Some(known));
                assert_eq!(in_file[0] & HAS_ETAG_DIGITS, 0);
            }
        }
    }
}
