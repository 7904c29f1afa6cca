//! What is known of an object, and as few bytes as hold it.
//!
//! Owns the packed record, which memory and files share (docs/format.md, "Records of objects").

use std::borrow::Cow;
use std::collections::BTreeMap;
use store::{ETag, Timestamp};

/// What is known of an object that is there, or was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Known<'a> {
    pub(super) key: &'a [u8],
    /// Of the last hint that counted; of what was seen in the store without one nobody knows.
    pub(super) order: Option<u128>,
    /// `None`: it is gone.
    pub(super) there: Option<There<'a>>,
}

/// What is known of an object that is there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct There<'a> {
    pub(super) size_bytes: u64,
    pub(super) modified: Timestamp,
    pub(super) etag: &'a str,
    /// When somebody last read it, as far as anybody said.
    pub(super) accessed: Option<Timestamp>,
    /// Known to have none is `Some(None)`.
    pub(super) content_type: Option<Option<&'a str>>,
    pub(super) properties: Option<Pairs<'a>>,
    pub(super) tags: Option<Pairs<'a>>,
}

/// Names and values.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pairs<'a> {
    Said(&'a [(Cow<'a, str>, Cow<'a, str>)]),
    Map(&'a BTreeMap<String, String>),
    Packed(&'a [u8]),
}

const IS_THERE: u8 = 1;
const HAS_ORDER: u8 = 1 << 1;
const HAS_ACCESSED: u8 = 1 << 2;
const HAS_TYPE: u8 = 1 << 3;
const HAS_NO_TYPE: u8 = 1 << 4;
const HAS_PROPERTIES: u8 = 1 << 5;
const HAS_TAGS: u8 = 1 << 6;

impl<'a> Known<'a> {
    /// Appends the packed record.
    pub(super) fn pack(&self, into: &mut Vec<u8>) {
        into.push(self.flags());
        text(into, self.key);
        if let Some(order) = self.order {
            into.extend_from_slice(&order.to_le_bytes());
        }
        if let Some(there) = &self.there {
            there.pack(into);
        }
    }

    fn flags(&self) -> u8 {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let there = self.there.as_ref().map_or(0, |there| {
            IS_THERE
                | flag(there.accessed.is_some(), HAS_ACCESSED)
                | flag(matches!(there.content_type, Some(Some(_))), HAS_TYPE)
                | flag(matches!(there.content_type, Some(None)), HAS_NO_TYPE)
                | flag(there.properties.is_some(), HAS_PROPERTIES)
                | flag(there.tags.is_some(), HAS_TAGS)
        });
        there | flag(self.order.is_some(), HAS_ORDER)
    }

    /// Reads a packed record; `None` for bytes that are none.
    pub(super) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = Rest(bytes);
        let flags = rest.take(1)?[0];
        let key = rest.text()?;
        let order = if flags & HAS_ORDER != 0 { Some(rest.array().map(u128::from_le_bytes)?) } else { None };
        let there = if flags & IS_THERE != 0 { Some(There::read(flags, &mut rest)?) } else { None };
        rest.0.is_empty().then_some(Self { key, order, there })
    }
}

/// The key of a packed record, without reading the rest.
pub(super) fn key_of(record: &[u8]) -> &[u8] {
    let mut rest = Rest(record);
    rest.take(1).and_then(|_| rest.text()).unwrap_or_default()
}

impl<'a> There<'a> {
    fn pack(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.size_bytes.to_le_bytes());
        into.extend_from_slice(&self.modified.0.to_le_bytes());
        string(into, self.etag);
        if let Some(accessed) = self.accessed {
            into.extend_from_slice(&accessed.0.to_le_bytes());
        }
        if let Some(Some(content_type)) = self.content_type {
            string(into, content_type);
        }
        for pairs in [self.properties, self.tags].into_iter().flatten() {
            pairs.pack(into);
        }
    }

    fn read(flags: u8, rest: &mut Rest<'a>) -> Option<Self> {
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
    /// The value of a name.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        match self {
            Self::Said(pairs) => {
                pairs.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_ref())
            }
            Self::Map(map) => map.get(name).map(String::as_str),
            Self::Packed(_) => {
                let mut found = None;
                self.each(|(is, value)| found = found.or((is == name).then_some(value)));
                found
            }
        }
    }

    pub(super) fn to_map(self) -> BTreeMap<String, String> {
        let mut map = BTreeMap::new();
        self.each(|(name, value)| {
            map.insert(name.to_owned(), value.to_owned());
        });
        map
    }

    fn each(self, mut see: impl FnMut((&'a str, &'a str))) {
        match self {
            Self::Said(pairs) => pairs.iter().for_each(|(name, value)| see((name, value))),
            Self::Map(map) => map.iter().for_each(|(name, value)| see((name, value))),
            Self::Packed(bytes) => {
                let mut rest = Rest(bytes);
                while let (Some(name), Some(value)) = (rest.str(), rest.str()) {
                    see((name, value));
                }
            }
        }
    }

    fn pack(self, into: &mut Vec<u8>) {
        let at = into.len();
        into.extend_from_slice(&[0; 4]);
        self.each(|(name, value)| {
            string(into, name);
            string(into, value);
        });
        let bytes = (into.len() - at - 4) as u32;
        into[at..at + 4].copy_from_slice(&bytes.to_le_bytes());
    }
}

/// The same names and values, however they are kept.
impl PartialEq for Pairs<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Packed(left), Self::Packed(right)) if left == right => true,
            _ => self.to_map() == other.to_map(),
        }
    }
}

/// What S3 allows fits; what is longer is cut.
fn string(into: &mut Vec<u8>, string: &str) {
    text(into, &string.as_bytes()[..string.floor_char_boundary(usize::from(u16::MAX))]);
}

/// Of at most 65,535 bytes.
pub(super) fn text(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    into.extend_from_slice(bytes);
}

/// What is left of bytes that are read from the front.
pub(super) struct Rest<'a>(pub(super) &'a [u8]);

impl<'a> Rest<'a> {
    pub(super) fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn array<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        self.take(BYTES)?.try_into().ok()
    }

    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let bytes = u16::from_le_bytes(self.array()?);
        self.take(usize::from(bytes))
    }

    pub(super) fn str(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.text()?).ok()
    }

    fn pairs(&mut self) -> Option<Pairs<'a>> {
        let bytes = u32::from_le_bytes(self.array()?);
        self.take(bytes as usize).map(Pairs::Packed)
    }
}

impl There<'_> {
    pub(super) fn etag(&self) -> ETag {
        ETag::new(self.etag)
    }

    /// Whether more is known than a listing says.
    pub(super) fn has_metadata(&self) -> bool {
        self.content_type.is_some() || self.properties.is_some() || self.tags.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back() {
        let map = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), String::new())]);
        let there = There {
            size_bytes: 7,
            modified: Timestamp(-5),
            etag: "d41d8cd98f00b204e9800998ecf8427e",
            accessed: Some(Timestamp(9)),
            content_type: Some(Some("text/plain")),
            properties: Some(Pairs::Map(&map)),
            tags: None,
        };
        let none = There { accessed: None, content_type: Some(None), properties: None, ..there };
        for there in [Some(there), Some(none), None] {
            for order in [None, Some(u128::MAX)] {
                let known = Known { key: b"k\xff", order, there };
                let mut bytes = Vec::new();
                known.pack(&mut bytes);
                assert_eq!(Known::read(&bytes), Some(known));
                assert_eq!(key_of(&bytes), b"k\xff");
                for cut in 0..bytes.len() {
                    assert_eq!(Known::read(&bytes[..cut]), None, "{cut}");
                }
            }
        }
    }
}
