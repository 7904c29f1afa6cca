//! The encoder and decoder of the primitive values of which all records consist.

use super::DecodeError;
use crate::{Ino, Kind, Moment, Name};
use bytes::Bytes;
use store::Timestamp;

/// Encodes a record.
#[derive(Debug, Default)]
pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    pub(crate) fn with_version(version: u8) -> Self {
        let mut encoder = Self(Vec::with_capacity(128));
        encoder.byte(version);
        encoder
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(crate) fn flag(&mut self, flag: bool) {
        self.byte(u8::from(flag));
    }

    pub(crate) fn number(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.byte(n as u8 | 0x80);
            n >>= 7;
        }
        self.byte(n as u8);
    }

    pub(crate) fn signed(&mut self, n: i64) {
        self.number(((n << 1) ^ (n >> 63)) as u64);
    }

    pub(crate) fn time(&mut self, time: Timestamp) {
        self.signed(time.0);
    }

    /// Encodes a time relative to `base`; takes one byte if they are equal.
    pub(crate) fn time_near(&mut self, time: Timestamp, base: Timestamp) {
        self.signed(time.0.wrapping_sub(base.0));
    }

    pub(crate) fn moment(&mut self, moment: Moment) {
        self.number(moment.mount);
        self.number(moment.nanos);
    }

    pub(crate) fn ino(&mut self, ino: Ino) {
        self.number(ino.0);
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.raw(bytes);
    }

    pub(crate) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }
}

/// Decodes a record.
#[derive(Debug)]
pub(crate) struct Decoder<'a>(&'a [u8]);

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Starts to decode a record and reads its version byte, which must be between 1 and `known`.
    pub(crate) fn with_version(bytes: &'a [u8], what: &'static str, known: u8) -> Result<Self, DecodeError> {
        let mut decoder = Self(bytes);
        match decoder.byte()? {
            0 => Err(DecodeError::Tag { what, found: 0 }),
            found if found > known => Err(DecodeError::Version { what, found, known }),
            _ => Ok(decoder),
        }
    }

    /// Returns whether all bytes have been decoded.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that all bytes have been decoded.
    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::Trailing(self.0.len())) }
    }

    pub(crate) fn byte(&mut self) -> Result<u8, DecodeError> {
        let (&first, rest) = self.0.split_first().ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(first)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            found => Err(DecodeError::Tag { what: "a flag", found }),
        }
    }

    pub(crate) fn number(&mut self) -> Result<u64, DecodeError> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return Err(DecodeError::Field("a number of more than 64 bits"));
            }
            n |= bits << shift;
            if byte < 0x80 {
                return Ok(n);
            }
        }
        Err(DecodeError::Field("a number of more than 64 bits"))
    }

    pub(crate) fn number_u32(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.number()?).map_err(|_| DecodeError::Field("a number of more than 32 bits"))
    }

    pub(crate) fn number_u16(&mut self) -> Result<u16, DecodeError> {
        u16::try_from(self.number()?).map_err(|_| DecodeError::Field("a number of more than 16 bits"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64, DecodeError> {
        let n = self.number()?;
        Ok((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    pub(crate) fn time(&mut self) -> Result<Timestamp, DecodeError> {
        Ok(Timestamp(self.signed()?))
    }

    pub(crate) fn time_near(&mut self, base: Timestamp) -> Result<Timestamp, DecodeError> {
        Ok(Timestamp(base.0.wrapping_add(self.signed()?)))
    }

    pub(crate) fn moment(&mut self) -> Result<Moment, DecodeError> {
        Ok(Moment { mount: self.number()?, nanos: self.number()? })
    }

    pub(crate) fn ino(&mut self) -> Result<Ino, DecodeError> {
        Ok(Ino(self.number()?))
    }

    pub(crate) fn raw(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = usize::try_from(self.number()?).map_err(|_| DecodeError::Truncated)?;
        self.raw(len)
    }

    pub(crate) fn owned(&mut self) -> Result<Bytes, DecodeError> {
        Ok(Bytes::copy_from_slice(self.bytes()?))
    }

    pub(crate) fn name(&mut self) -> Result<Name, DecodeError> {
        Name::new(self.bytes()?).map_err(|_| DecodeError::Field("an invalid name"))
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| DecodeError::Field("a text that is not UTF-8"))
    }

    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }
}

/// All types of inodes, indexed by the number that represents them in records.
pub(super) const KINDS: [Kind; 7] = [
    Kind::File,
    Kind::Directory,
    Kind::Symlink,
    Kind::Fifo,
    Kind::Socket,
    Kind::CharDevice,
    Kind::BlockDevice,
];

pub(super) fn kind_number(kind: Kind) -> u8 {
    match kind {
        Kind::File => 0,
        Kind::Directory => 1,
        Kind::Symlink => 2,
        Kind::Fifo => 3,
        Kind::Socket => 4,
        Kind::CharDevice => 5,
        Kind::BlockDevice => 6,
    }
}

pub(super) fn kind_from(number: u8) -> Result<Kind, DecodeError> {
    KINDS.get(usize::from(number)).copied().ok_or(DecodeError::Tag { what: "an inode type", found: number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for n in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut encoder = Encoder::default();
            encoder.number(n);
            encoder.signed(n as i64);
            let bytes = encoder.into_bytes();
            let mut decoder = Decoder::new(&bytes);
            assert_eq!(decoder.number().unwrap(), n);
            assert_eq!(decoder.signed().unwrap(), n as i64);
            decoder.finish().unwrap();
        }
    }

    #[test]
    fn numbers_of_more_than_64_bits_are_rejected() {
        let mut bytes = vec![0xff; 9];
        bytes.push(2);
        assert!(Decoder::new(&bytes).number().is_err());
        assert!(Decoder::new(&[0x80; 11]).number().is_err());
        assert_eq!(Decoder::new(&[0x80]).number(), Err(DecodeError::Truncated));
    }

    #[test]
    fn kinds_match_their_numbers() {
        for (number, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(usize::from(kind_number(kind)), number);
        }
    }
}
