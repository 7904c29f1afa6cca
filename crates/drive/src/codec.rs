//! Encoding of values on the device. Numbers are varints (LEB128), or little-endian with a fixed length; bytes and
//! lists follow their length. Also the checksum, CRC-32C.

use crc_fast::{CrcAlgorithm, Digest};

/// Returns the CRC-32C of some bytes, the checksum of everything on the device.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The CRC-32C of bytes that arrive in pieces.
pub(crate) struct Crc32c(Digest);

impl Crc32c {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

/// A byte vector to which encoded values are appended.
#[derive(Debug, Default)]
pub(crate) struct Encoder(pub(crate) Vec<u8>);

impl Encoder {
    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(crate) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// Appends a number as eight bytes, little-endian. For random numbers this is shorter than a varint.
    pub(crate) fn fixed64(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    pub(crate) fn fixed32(&mut self, number: u32) {
        self.0.extend(number.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    pub(crate) fn optional(&mut self, text: Option<&str>) {
        self.byte(u8::from(text.is_some()));
        if let Some(text) = text {
            self.bytes(text.as_bytes());
        }
    }

    pub(crate) fn list<T>(
        &mut self,
        values: impl ExactSizeIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) {
        self.number(values.len() as u64);
        values.for_each(|value| write(self, value));
    }
}

/// The encoded bytes that are still to be read. Each method removes a value from their beginning and returns it, or
/// `None` if they do not begin with a valid one.
#[derive(Debug, Clone)]
pub(crate) struct Decoder<'a>(pub(crate) &'a [u8]);

impl<'a> Decoder<'a> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(crate) fn number32(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    pub(crate) fn fixed64(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    pub(crate) fn fixed32(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(crate) fn optional(&mut self) -> Option<Option<&'a str>> {
        match self.byte()? {
            0 => Some(None),
            1 => Some(Some(self.text()?)),
            _ => None,
        }
    }

    /// Reads a list. Each entry takes at least one byte, so an impossible count is refused before memory is allocated.
    pub(crate) fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = usize::try_from(self.number()?).ok()?;
        if count > self.0.len() {
            return None;
        }
        (0..count).map(|_| read(self)).collect()
    }

    /// Returns the value if all bytes were read, else `None`.
    pub(crate) fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_decode_to_what_was_encoded() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut encoder = Encoder::default();
            encoder.number(number);
            assert_eq!(Decoder(&encoder.0).number(), Some(number));
        }
        assert_eq!(Decoder(&[0xff; 11]).number(), None);
        assert_eq!(Decoder(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number(), None);
    }

    #[test]
    fn a_list_longer_than_the_bytes_is_refused() {
        let mut encoder = Encoder::default();
        encoder.number(u64::MAX);
        assert_eq!(Decoder(&encoder.0).list(|decoder| decoder.byte()), None);
    }
}
