//! What objects hold: bytes that no compressor makes smaller, sent without being made.
//!
//! Every object is a rope of pieces of one block of noise, each from a place that follows from the object and the
//! version, behind a stamp that names both. So sending costs nothing here, and whoever reads a body knows which it must be.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use store::{Entropy, Payload};
use tokio::time::Instant;

const PIECE_BYTES: u64 = 1 << 20;
/// Where pieces begin; the block is one piece longer.
const PLACES: u64 = 16 << 20;
const MAGIC: &[u8; 8] = b"tenon-an";
const STAMP_BYTES: usize = 24;

/// The bytes of all objects of a run.
#[derive(Debug, Clone)]
pub struct Content {
    noise: Bytes,
    seed: u64,
}

/// Why a body is not what it should be, in a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct WrongBytes(String);

/// What making and comparing bodies costs the client, measured without a server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GeneratorCost {
    /// Seconds for each GiB put.
    pub made_secs_per_gib: f64,
    /// Seconds for each GiB compared byte by byte.
    pub compared_secs_per_gib: f64,
}

impl Content {
    /// The same seed makes the same bytes.
    pub fn new(seed: u64) -> Self {
        let numbers = Entropy::new(seed);
        let mut noise = Vec::with_capacity((PLACES + PIECE_BYTES) as usize);
        while noise.len() < noise.capacity() {
            noise.extend_from_slice(&numbers.next_u64().to_le_bytes());
        }
        Self { noise: noise.into(), seed }
    }

    /// The bytes of a version of an object, which need no memory of their own.
    pub fn payload(&self, object: u64, version: u64, size_bytes: u64) -> Payload {
        let stamp = stamp(object, version).slice(..STAMP_BYTES.min(size_bytes as usize));
        let mut payload = Payload::from(stamp);
        while payload.len() < size_bytes {
            let at = payload.len();
            let len = (PIECE_BYTES - at % PIECE_BYTES).min(size_bytes - at);
            let from = self.place(object, version, at);
            payload.push(self.noise.slice(from..from + len as usize));
        }
        payload
    }

    /// Where in the noise the byte `at` of a body comes from, up to the end of its piece.
    fn place(&self, object: u64, version: u64, at: u64) -> usize {
        let mixed = object.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ version.rotate_left(32) ^ self.seed;
        let piece = Entropy::new(mixed ^ (at / PIECE_BYTES).wrapping_mul(0xd6e8_feb8_6659_fd93));
        (piece.below(PLACES) + at % PIECE_BYTES) as usize
    }

    /// What making and comparing so many bytes costs, so that a client that is the bottleneck is seen.
    pub fn cost(&self) -> GeneratorCost {
        const BYTES: u64 = 64 << 20;
        let begun = Instant::now();
        let payload = self.payload(1, 1, BYTES);
        let made = begun.elapsed();
        let begun = Instant::now();
        let mut body = Body::new(self.clone(), 1, true);
        let held = payload.pieces().iter().all(|piece| body.take(piece).is_ok());
        assert!(held && body.end(BYTES).is_ok(), "content does not hold itself");
        let per_gib = |span: Duration| span.as_secs_f64() * (1u64 << 30) as f64 / BYTES as f64;
        GeneratorCost { made_secs_per_gib: per_gib(made), compared_secs_per_gib: per_gib(begun.elapsed()) }
    }
}

fn stamp(object: u64, version: u64) -> Bytes {
    [*MAGIC, object.to_le_bytes(), version.to_le_bytes()].concat().into()
}

/// A body as it arrives, in pieces of any size.
#[derive(Debug)]
pub(crate) struct Body {
    content: Content,
    object: u64,
    is_compared: bool,
    stamp: Vec<u8>,
    at: u64,
}

impl Body {
    /// Of this object, of any version; compared wholly, or by its length and stamp.
    pub(crate) fn new(content: Content, object: u64, is_compared: bool) -> Self {
        Self { content, object, is_compared, stamp: Vec::with_capacity(STAMP_BYTES), at: 0 }
    }

    /// The next bytes.
    pub(crate) fn take(&mut self, mut bytes: &[u8]) -> Result<(), WrongBytes> {
        if self.stamp.len() < STAMP_BYTES {
            let (stamp, rest) = bytes.split_at(bytes.len().min(STAMP_BYTES - self.stamp.len()));
            self.stamp.extend_from_slice(stamp);
            self.at += stamp.len() as u64;
            bytes = rest;
            if self.stamp.len() == STAMP_BYTES {
                self.check_stamp()?;
            }
        }
        while self.is_compared && !bytes.is_empty() {
            let len = bytes.len().min((PIECE_BYTES - self.at % PIECE_BYTES) as usize);
            let from = self.content.place(self.object, self.version(), self.at);
            if self.content.noise[from..from + len] != bytes[..len] {
                return Err(self.wrong(&format!(
                    "differs from what was put at byte {} to {}",
                    self.at,
                    self.at + len as u64
                )));
            }
            self.at += len as u64;
            bytes = &bytes[len..];
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// That it ends here, where it should.
    pub(crate) fn end(&self, size_bytes: u64) -> Result<(), WrongBytes> {
        if self.at != size_bytes {
            return Err(self.wrong(&format!("has {} bytes instead of {size_bytes}", self.at)));
        }
        Ok(())
    }

    fn check_stamp(&self) -> Result<(), WrongBytes> {
        if self.stamp[..16] != stamp(self.object, 0)[..16] {
            return Err(self.wrong("begins as another object"));
        }
        Ok(())
    }

    fn version(&self) -> u64 {
        let bytes = self.stamp.get(16..STAMP_BYTES).and_then(|bytes| bytes.try_into().ok());
        u64::from_le_bytes(bytes.unwrap_or_default())
    }

    fn wrong(&self, what: &str) -> WrongBytes {
        WrongBytes(format!("object {} {what}", self.object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 3_000_001;

    fn read(bytes: &[u8], object: u64, is_compared: bool) -> Result<(), WrongBytes> {
        let mut body = Body::new(Content::new(1), object, is_compared);
        bytes.chunks(70_001).try_for_each(|piece| body.take(piece))?;
        body.end(BYTES)
    }

    #[test]
    fn a_body_is_known_whatever_its_version() {
        for version in [0, 1, 77] {
            let sent = Content::new(1).payload(5, version, BYTES).to_bytes();
            assert_eq!(sent.len() as u64, BYTES);
            assert_eq!(read(&sent, 5, true), Ok(()));
            assert!(read(&sent, 6, false).unwrap_err().to_string().contains("another object"));
            assert!(
                read(&sent[..sent.len() - 1], 5, false).unwrap_err().to_string().contains("bytes instead")
            );
        }
    }

    #[test]
    fn s336_one_wrong_byte_is_seen_where_bodies_are_compared() {
        let mut sent = Content::new(1).payload(5, 1, BYTES).to_bytes().to_vec();
        sent[2_500_000] ^= 1;
        assert!(read(&sent, 5, true).unwrap_err().to_string().contains("differs"));
        assert_eq!(read(&sent, 5, false), Ok(()));
    }

    #[test]
    fn s335_bytes_do_not_repeat() {
        let content = Content::new(1);
        let (a, b) = (content.payload(1, 0, 4096).to_bytes(), content.payload(1, 1, 4096).to_bytes());
        assert_ne!(a[STAMP_BYTES..], b[STAMP_BYTES..]);
        // Every byte value about equally often: nothing for a compressor.
        let mut counts = [0u32; 256];
        content.payload(1, 0, 1 << 20).to_bytes().iter().for_each(|&byte| counts[usize::from(byte)] += 1);
        assert!(counts.iter().all(|count| (3700..4500).contains(count)), "{counts:?}");
    }
}
