//! A blocked Bloom filter: says which keys a partition may hold. Each key sets bits in one line only.
//!
//! A line is 64 bytes (a cache line of the processor): eight words of 64 bits. The upper 32 bits of the key's XXH3 hash choose the
//! line. In each word of that line the key sets one bit, chosen by six of the lower 48 bits of the hash.

use crate::{Error, Result};
use bytes::Bytes;
use std::sync::Arc;

const LINE_LEN: usize = 64;

/// A line of the filter, aligned so that a probe touches one cache line of the processor.
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

/// Returns the hash of a key from which the filter derives line and bits.
pub(crate) fn hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// Returns the index of a key's line among `lines`, in proportion to the key's hash. With a few thousand lines this
/// uses hash bits that choose no bit in a word.
fn line(hash: u64, lines: usize) -> usize {
    (((hash >> 32) * lines as u64) >> 32) as usize
}

/// Builds the encoded filter of these keys.
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

/// A filter that is being read. A filter without lines was not written and excludes no key.
#[derive(Debug, Clone)]
pub(crate) struct Filter(Arc<[Line]>);

impl Filter {
    /// Decodes the filter at offset `at` of the table.
    pub(crate) fn new(bytes: &Bytes, at: u64) -> Result<Self> {
        let (lines, []) = bytes.as_chunks::<LINE_LEN>() else {
            return Err(Error::Corrupt { what: "the length of a filter is not a multiple of 64 bytes", at });
        };
        Ok(Self(lines.iter().map(read_line).collect()))
    }

    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        self.0.get(line(hash, self.0.len())).is_none_or(|line| line.has(Line::of(hash)))
    }

    /// Returns the number of bytes that the filter occupies in memory.
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
