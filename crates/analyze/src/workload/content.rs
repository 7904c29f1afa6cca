//! Content of objects: incompressible bytes that cost almost nothing to generate.
//!
//! The content of an object is a stamp with the numbers of the object and its version, followed by pieces of one shared block of random
//! bytes. The offset of each piece in the block is a function of object, version and position. PUTs thus send existing memory, and a reader
//! can compute the expected bytes of any body.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use store::{Entropy, Payload};
use tokio::time::Instant;

/// Maximum size of a piece.
const PIECE_BYTES: u64 = 1 << 20;
/// Number of possible offsets of a piece in the block, which is longer than this by one piece.
const OFFSETS: u64 = 16 << 20;
const MAGIC: &[u8; 8] = b"tenon-an";
const STAMP_BYTES: usize = 24;

/// The content of all objects of a run.
#[derive(Debug, Clone)]
pub struct Content {
    block: Bytes,
    seed: u64,
}

/// A difference between a body and its expected content, one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct WrongBytes(String);

/// CPU cost of generating and comparing content in the client, measured without a server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct GeneratorCost {
    /// Seconds per GiB generated.
    pub made_secs_per_gib: f64,
    /// Seconds per GiB compared byte by byte.
    pub compared_secs_per_gib: f64,
}

impl Content {
    /// Makes the content of a seed: the same seed yields the same bytes.
    pub fn new(seed: u64) -> Self {
        let numbers = Entropy::new(seed);
        let mut block = Vec::with_capacity((OFFSETS + PIECE_BYTES) as usize);
        while block.len() < block.capacity() {
            block.extend_from_slice(&numbers.next_u64().to_le_bytes());
        }
        Self { block: block.into(), seed }
    }

    /// Returns the content of an object's version. The payload shares the memory of the block.
    pub fn payload(&self, object: u64, version: u64, size_bytes: u64) -> Payload {
        let stamp = stamp(object, version).slice(..STAMP_BYTES.min(size_bytes as usize));
        let mut payload = Payload::from(stamp);
        while payload.len() < size_bytes {
            let at = payload.len();
            let len = (PIECE_BYTES - at % PIECE_BYTES).min(size_bytes - at);
            let from = self.block_offset(object, version, at);
            payload.push(self.block.slice(from..from + len as usize));
        }
        payload
    }

    /// Returns the offset in the block of the byte `at` of a body. The following bytes up to the end of the piece are adjacent.
    fn block_offset(&self, object: u64, version: u64, at: u64) -> usize {
        let mixed = object.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ version.rotate_left(32) ^ self.seed;
        let entropy_of_piece = Entropy::new(mixed ^ (at / PIECE_BYTES).wrapping_mul(0xd6e8_feb8_6659_fd93));
        (entropy_of_piece.below(OFFSETS) + at % PIECE_BYTES) as usize
    }

    /// Measures the cost of generating and comparing content, to show whether the client is the bottleneck.
    pub fn cost(&self) -> GeneratorCost {
        const BYTES: u64 = 64 << 20;
        let start = Instant::now();
        let payload = self.payload(1, 1, BYTES);
        let generated = start.elapsed();
        let start = Instant::now();
        let mut checker = BodyChecker::new(self.clone(), 1, true);
        let is_equal = payload.pieces().iter().all(|piece| checker.check(piece).is_ok());
        assert!(
            is_equal && checker.finish(BYTES).is_ok(),
            "generated content does not equal the expected content"
        );
        let per_gib = |span: Duration| span.as_secs_f64() * (1u64 << 30) as f64 / BYTES as f64;
        GeneratorCost {
            made_secs_per_gib: per_gib(generated),
            compared_secs_per_gib: per_gib(start.elapsed()),
        }
    }
}

fn stamp(object: u64, version: u64) -> Bytes {
    [*MAGIC, object.to_le_bytes(), version.to_le_bytes()].concat().into()
}

/// A checker of a body that arrives in pieces of any size.
#[derive(Debug)]
pub(crate) struct BodyChecker {
    content: Content,
    object: u64,
    is_compared: bool,
    stamp: Vec<u8>,
    at: u64,
}

impl BodyChecker {
    /// Makes a checker for a body of this object, of any version. `is_compared`: compare all bytes, not only length and stamp.
    pub(crate) fn new(content: Content, object: u64, is_compared: bool) -> Self {
        Self { content, object, is_compared, stamp: Vec::with_capacity(STAMP_BYTES), at: 0 }
    }

    /// Checks the next bytes.
    pub(crate) fn check(&mut self, mut bytes: &[u8]) -> Result<(), WrongBytes> {
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
            let from = self.content.block_offset(self.object, self.version(), self.at);
            if self.content.block[from..from + len] != bytes[..len] {
                return Err(self.wrong(&format!(
                    "differs from the content that was put, between bytes {} and {}",
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

    /// Checks that the body ends here and has this size.
    pub(crate) fn finish(&self, size_bytes: u64) -> Result<(), WrongBytes> {
        if self.at != size_bytes {
            return Err(self.wrong(&format!("has {} bytes instead of {size_bytes}", self.at)));
        }
        Ok(())
    }

    fn check_stamp(&self) -> Result<(), WrongBytes> {
        if self.stamp[..16] != stamp(self.object, 0)[..16] {
            return Err(self.wrong("begins with the stamp of another object"));
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

    fn check(bytes: &[u8], object: u64, is_compared: bool) -> Result<(), WrongBytes> {
        let mut checker = BodyChecker::new(Content::new(1), object, is_compared);
        bytes.chunks(70_001).try_for_each(|piece| checker.check(piece))?;
        checker.finish(BYTES)
    }

    #[test]
    fn a_body_of_any_version_is_accepted() {
        for version in [0, 1, 77] {
            let sent = Content::new(1).payload(5, version, BYTES).to_bytes();
            assert_eq!(sent.len() as u64, BYTES);
            assert_eq!(check(&sent, 5, true), Ok(()));
            assert!(check(&sent, 6, false).unwrap_err().to_string().contains("another object"));
            assert!(
                check(&sent[..sent.len() - 1], 5, false).unwrap_err().to_string().contains("bytes instead")
            );
        }
    }

    #[test]
    fn s336_one_wrong_byte_is_detected_when_bodies_are_compared() {
        let mut sent = Content::new(1).payload(5, 1, BYTES).to_bytes().to_vec();
        sent[2_500_000] ^= 1;
        assert!(check(&sent, 5, true).unwrap_err().to_string().contains("differs"));
        assert_eq!(check(&sent, 5, false), Ok(()));
    }

    #[test]
    fn s335_content_does_not_repeat() {
        let content = Content::new(1);
        let (a, b) = (content.payload(1, 0, 4096).to_bytes(), content.payload(1, 1, 4096).to_bytes());
        assert_ne!(a[STAMP_BYTES..], b[STAMP_BYTES..]);
        // Every byte value is about equally frequent, so the content is not compressible.
        let mut counts = [0u32; 256];
        content.payload(1, 0, 1 << 20).to_bytes().iter().for_each(|&byte| counts[usize::from(byte)] += 1);
        assert!(counts.iter().all(|count| (3700..4500).contains(count)), "{counts:?}");
    }
}
