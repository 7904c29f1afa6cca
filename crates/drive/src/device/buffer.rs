//! Memory that a device can read into and write from without a copy.

use super::BLOCK_BYTES;
use bytes::Bytes;
use std::fmt;
use std::ops::{Deref, DerefMut};

const ALIGNMENT: usize = BLOCK_BYTES as usize;

/// Bytes in whole blocks that begin at a multiple of [`BLOCK_BYTES`] in memory, as direct I/O asks. It becomes a
/// [`Bytes`] without a copy.
pub struct Buffer {
    /// Longer than the window by what it takes to align it, never moved or grown: the window stays aligned.
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// Zeros. The length is a multiple of [`BLOCK_BYTES`].
    pub fn zeroed(len: usize) -> Self {
        assert!(len.is_multiple_of(ALIGNMENT), "{len} bytes are no whole blocks");
        let memory = vec![0; len + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Self { memory, start, len }
    }

    /// The slices one after the other, filled up with zeros to whole blocks.
    pub fn gathered<'a>(slices: impl IntoIterator<Item = &'a [u8], IntoIter: Clone>) -> Self {
        let slices = slices.into_iter();
        let bytes: usize = slices.clone().map(<[u8]>::len).sum();
        let len = bytes.next_multiple_of(ALIGNMENT);
        let mut memory: Vec<u8> = Vec::with_capacity(len + ALIGNMENT);
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        memory.resize(start, 0);
        for slice in slices {
            memory.extend_from_slice(slice);
        }
        memory.resize(start + len, 0);
        Self { memory, start, len }
    }

    /// Whether a device can use the memory as it is: it begins and ends where a buffer would.
    pub fn is_aligned(bytes: &[u8]) -> bool {
        bytes.as_ptr().align_offset(ALIGNMENT) == 0 && bytes.len().is_multiple_of(ALIGNMENT)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Buffer> for Bytes {
    fn from(buffer: Buffer) -> Self {
        Self::from_owner(buffer)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_every_size_are_aligned_and_zero() {
        for blocks in [0, 1, 2, 7, 256] {
            let buffer = Buffer::zeroed(blocks * ALIGNMENT);
            assert!(Buffer::is_aligned(&buffer));
            assert_eq!(buffer.len(), blocks * ALIGNMENT);
            assert!(buffer.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn gathered_slices_are_joined_and_filled_up() {
        let buffer = Buffer::gathered([&b"ab"[..], b"", b"cde"]);
        assert!(Buffer::is_aligned(&buffer));
        assert_eq!(buffer.len(), ALIGNMENT);
        assert_eq!(&buffer[..6], b"abcde\0");
        assert!(Buffer::gathered([]).is_empty());
    }

    #[test]
    fn bytes_of_a_buffer_are_the_same_memory() {
        let mut buffer = Buffer::zeroed(2 * ALIGNMENT);
        buffer[ALIGNMENT] = 7;
        let at = buffer.as_ptr();
        let bytes = Bytes::from(buffer);
        assert_eq!(bytes.as_ptr(), at);
        assert_eq!(bytes[ALIGNMENT], 7);
    }

    #[test]
    fn a_part_of_a_buffer_is_not_aligned() {
        let buffer = Buffer::zeroed(2 * ALIGNMENT);
        assert!(!Buffer::is_aligned(&buffer[1..=ALIGNMENT]));
        assert!(!Buffer::is_aligned(&buffer[..100]));
    }
}
