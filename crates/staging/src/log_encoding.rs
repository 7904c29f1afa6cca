//! Encoding of values in this crate's logs: numbers are little-endian, texts are preceded by their length.

use store::{ETag, ObjectKey, Precondition};

/// An encoder that appends to a buffer.
#[derive(Default)]
pub(crate) struct Encoder(pub(crate) Vec<u8>);

impl Encoder {
    pub(crate) fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    pub(crate) fn optional(&mut self, text: Option<&str>) {
        self.0.push(u8::from(text.is_some()));
        if let Some(text) = text {
            self.bytes(text.as_bytes());
        }
    }

    pub(crate) fn precondition(&mut self, precondition: &Precondition) {
        match precondition {
            Precondition::None => self.0.push(0),
            Precondition::Absent => self.0.push(1),
            Precondition::Matches(etag) => {
                self.0.push(2);
                self.bytes(etag.as_str().as_bytes());
            }
        }
    }
}

/// A decoder. Every method returns `None` if the remaining bytes are too short or malformed.
pub(crate) struct Decoder<'a>(pub(crate) &'a [u8]);

impl Decoder<'_> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    pub(crate) fn bytes(&mut self) -> Option<&[u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn key(&mut self) -> Option<ObjectKey> {
        ObjectKey::try_from(self.bytes()?).ok()
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        Some(std::str::from_utf8(self.bytes()?).ok()?.to_owned())
    }

    pub(crate) fn optional(&mut self) -> Option<Option<String>> {
        match self.byte()? {
            0 => Some(None),
            1 => Some(Some(self.text()?)),
            _ => None,
        }
    }

    pub(crate) fn precondition(&mut self) -> Option<Precondition> {
        match self.byte()? {
            0 => Some(Precondition::None),
            1 => Some(Precondition::Absent),
            2 => Some(Precondition::Matches(ETag::new(&self.text()?))),
            _ => None,
        }
    }
}
