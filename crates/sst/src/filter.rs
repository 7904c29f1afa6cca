//! Which keys a partition may hold: a Bloom filter of lines, each key in one of them.
//!
//! A line is 64 bytes, as much as a processor fetches at once: eight words of 64 bits. A key sets a bit in each word of one
//! line: the line by the upper bits of the key's XXH3, and the bit in each word by six of its lower 48.

use crate::{Error, Result};
use bytes::Bytes;
use std::sync::Arc;

const LINE_LEN: usize = 64;

/// Aligned so that a probe touches one line of the processor's cache.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Line([u64; 8]);

impl Line {
    fn of(hash: u64) -> Self {
        Self(std::array::from_fn(|word| 1 << (hash >> (6 * word) & 63)))
    }

    fn set(&mut self, bits: Self) {
        self.0.iter_mut().zip(bits.0).for_each(|(word, bit)| *word |= bit);
    }

    fn has(&self, bits: Self) -> bool {
        self.0.iter().zip(bits.0).fold(true, |has, (word, bit)| has & (word & bit != 0))
    }
}

/// What the filter knows of a key.
pub(crate) fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// The line of a key among `lines`, in proportion to its hash: of a few thousand lines by bits that choose no other.
fn line(hash: u64, lines: usize) -> usize {
    (((hash >> 32) * lines as u64) >> 32) as usize
}

/// The filter of these keys, as it is written.
pub(crate) fn build(hashes: &[u64], bits_per_key: u32) -> Vec<u8> {
    let bits = hashes.len() * bits_per_key as usize;
    let mut lines = vec![Line::default(); bits.div_ceil(8 * LINE_LEN)];
    if !lines.is_empty() {
        for hash in hashes {
            let line = line(*hash, lines.len());
            lines[line].set(Line::of(*hash));
        }
    }
    lines.iter().flat_map(|line| line.0).flat_map(u64::to_le_bytes).collect()
}

/// A filter that is read. One without lines was not written, and excludes no key.
#[derive(Debug, Clone)]
pub(crate) struct Filter(Arc<[Line]>);

impl Filter {
    /// The filter that lies at `at`.
    pub(crate) fn new(bytes: &Bytes, at: u64) -> Result<Self> {
        let (lines, []) = bytes.as_chunks::<LINE_LEN>() else {
            return Err(Error::Corrupt { what: "a filter is not made of lines", at });
        };
        Ok(Self(lines.iter().map(read_line).collect()))
    }

    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        self.0.get(line(hash, self.0.len())).is_none_or(|line| line.has(Line::of(hash)))
    }

    /// How many bytes it keeps.
    pub(crate) fn len(&self) -> usize {
        self.0.len() * LINE_LEN
    }
}

fn read_line(bytes: &[u8; LINE_LEN]) -> Line {
    let (words, _) = bytes.as_chunks::<8>();
    let mut line = Line::default();
    line.0.iter_mut().zip(words).for_each(|(word, bytes)| *word = u64::from_le_bytes(*bytes));
    line
}
