//! Buffers that a device can read into and write from without a copy.

use super::BLOCK_BYTES;
use super::huge_pages::Chunk;
use bytes::Bytes;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

const ALIGNMENT: usize = BLOCK_BYTES as usize;

/// The shortest buffer that is kept for reuse, in bytes.
const KEPT_BYTES_MIN: usize = 64 << 10;

/// Whole blocks of memory aligned to [`BLOCK_BYTES`], as direct I/O requires. Converts to [`Bytes`] without a copy.
pub struct Buffer {
    memory: Backing,
    /// Offset of the aligned bytes in `memory`.
    start: usize,
    /// Number of bytes of the buffer.
    len: usize,
}

/// The memory of a buffer.
enum Backing {
    /// Longer than the buffer's bytes by the alignment. Never moved or grown, so these bytes stay aligned.
    Owned(Vec<u8>),
    /// Returned to the pool after use.
    Pooled(Chunk, Weak<BufferPool>),
}

impl Buffer {
    /// Makes a buffer of zeros. The length must be a multiple of [`BLOCK_BYTES`].
    pub fn zeroed(len: usize) -> Self {
        assert!(len.is_multiple_of(ALIGNMENT), "{len} bytes are not whole blocks");
        Self::owned(vec![0; len + ALIGNMENT], len)
    }

    /// Joins slices, padded with zeros to whole blocks.
    pub fn gathered<'a>(slices: impl IntoIterator<Item = &'a [u8], IntoIter: Clone>) -> Self {
        Self::in_rows(BLOCK_BYTES, slices)
    }

    /// Joins slices, padded with zeros to whole rows of `row_bytes`, a multiple of the block size.
    pub fn in_rows<'a>(row_bytes: u64, slices: impl IntoIterator<Item = &'a [u8], IntoIter: Clone>) -> Self {
        let slices = slices.into_iter();
        let bytes: usize = slices.clone().map(<[u8]>::len).sum();
        let len = bytes.next_multiple_of(row_bytes as usize);
        let mut memory: Vec<u8> = Vec::with_capacity(len + ALIGNMENT);
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        memory.resize(start, 0);
        for slice in slices {
            memory.extend_from_slice(slice);
        }
        memory.resize(start + len, 0);
        Self::owned(memory, len)
    }

    fn owned(memory: Vec<u8>, len: usize) -> Self {
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Self { memory: Backing::Owned(memory), start, len }
    }

    /// Returns whether a device can use the memory without a copy: start and length are aligned.
    pub fn is_aligned(bytes: &[u8]) -> bool {
        bytes.as_ptr().align_offset(ALIGNMENT) == 0 && bytes.len().is_multiple_of(ALIGNMENT)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Backing::Pooled(chunk, pool) = std::mem::replace(&mut self.memory, Backing::Owned(Vec::new()))
            && let Some(pool) = pool.upgrade()
        {
            pool.put(chunk);
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let memory: &[u8] = match &self.memory {
            Backing::Owned(memory) => memory,
            Backing::Pooled(chunk, _) => chunk,
        };
        &memory[self.start..self.start + self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let memory: &mut [u8] = match &mut self.memory {
            Backing::Owned(memory) => memory,
            Backing::Pooled(chunk, _) => chunk,
        };
        &mut memory[self.start..self.start + self.len]
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

/// A pool of large buffers for reuse. Memory that is new to the process costs as much CPU time as reading a device into it, or more
/// (docs/decisions/0044), and small pages cost as much again (docs/decisions/0057).
#[derive(Debug, Clone)]
pub struct Buffers(Arc<BufferPool>);

/// Aligned memory that buffers leave for later ones.
#[derive(Debug)]
struct BufferPool {
    /// Maximum bytes of unused memory to keep.
    keep_bytes: usize,
    /// The memory that is kept.
    free: Mutex<FreeChunks>,
}

/// The unused chunks of a pool.
#[derive(Debug, Default)]
struct FreeChunks {
    chunks: Vec<Chunk>,
    /// The length of all of them.
    len_bytes: usize,
}

impl Buffers {
    /// Makes a pool that keeps at most `keep_bytes` of unused memory.
    pub fn new(keep_bytes: usize) -> Self {
        Self(Arc::new(BufferPool { keep_bytes, free: Mutex::default() }))
    }

    /// Returns a buffer of this length with arbitrary contents. The length must be a multiple of [`BLOCK_BYTES`].
    pub fn take(&self, len: usize) -> Buffer {
        if len < KEPT_BYTES_MIN {
            return Buffer::zeroed(len);
        }
        assert!(len.is_multiple_of(ALIGNMENT), "{len} bytes are not whole blocks");
        // Few sizes, so that a returned buffer fits the next request.
        let chunk = self.0.take(len.next_power_of_two());
        Buffer { memory: Backing::Pooled(chunk, Arc::downgrade(&self.0)), start: 0, len }
    }
}

/// A buffer that is being filled from its beginning on.
#[derive(Debug)]
pub(crate) struct BufferBuilder {
    buffer: Buffer,
    /// The number of bytes so far.
    filled: usize,
    /// The finished buffer is padded to a multiple of this.
    row_bytes: usize,
}

impl Buffers {
    /// Begins a buffer with room for `capacity_bytes`, which is padded to whole rows of `row_bytes` in the end.
    pub(crate) fn fill(&self, capacity_bytes: usize, row_bytes: u64) -> BufferBuilder {
        let row_bytes = row_bytes as usize;
        BufferBuilder { buffer: self.take(capacity_bytes.next_multiple_of(row_bytes)), filled: 0, row_bytes }
    }
}

impl BufferBuilder {
    /// Appends bytes. Panics if there is no room.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let end = self.filled + bytes.len();
        self.buffer[self.filled..end].copy_from_slice(bytes);
        self.filled = end;
    }

    /// Returns the number of bytes for which there is room.
    pub(crate) fn room(&self) -> usize {
        self.buffer.len - self.filled
    }

    /// Appends zeros up to the next whole block.
    pub(crate) fn pad(&mut self) {
        self.pad_to(ALIGNMENT);
    }

    /// Fills the buffer with zeros up to a multiple of a length.
    fn pad_to(&mut self, multiple: usize) {
        let end = self.filled.next_multiple_of(multiple);
        self.buffer[self.filled..end].fill(0);
        self.filled = end;
    }

    /// Returns the buffer, padded to whole rows.
    pub(crate) fn finish(mut self) -> Buffer {
        self.pad_to(self.row_bytes);
        self.buffer.len = self.filled;
        self.buffer
    }
}

impl Deref for BufferBuilder {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }
}

impl BufferPool {
    fn take(&self, len: usize) -> Chunk {
        let mut free = self.lock();
        loop {
            if let Some(chunk) = free.take(len) {
                return chunk;
            }
            Chunk::allocate(len).for_each(|chunk| free.put(chunk));
        }
    }

    fn put(&self, chunk: Chunk) {
        if chunk.has_lost_sibling() {
            return;
        }
        let mut free = self.lock();
        free.put(chunk);
        let mut gone = Vec::new();
        while free.len_bytes > self.keep_bytes {
            gone.append(&mut free.take_oldest());
        }
        drop(free);
        // Freed after the lock is released, as that takes time.
        drop(gone);
    }

    fn lock(&self) -> MutexGuard<'_, FreeChunks> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FreeChunks {
    fn put(&mut self, chunk: Chunk) {
        self.len_bytes += chunk.len();
        self.chunks.push(chunk);
    }

    /// Takes the chunk of this length that was returned last: it is still in the processor's caches. Returns `None` if
    /// there is none.
    fn take(&mut self, len: usize) -> Option<Chunk> {
        let found = self.chunks.iter().rposition(|chunk| chunk.len() == len)?;
        self.len_bytes -= len;
        Some(self.chunks.remove(found))
    }

    /// Removes the oldest chunk, with all chunks of the same huge pages: they are worth keeping only together.
    fn take_oldest(&mut self) -> Vec<Chunk> {
        let oldest = self.chunks.remove(0);
        let mut taken: Vec<Chunk> =
            self.chunks.extract_if(.., |chunk| chunk.shares_mapping(&oldest)).collect();
        taken.push(oldest);
        self.len_bytes -= taken.iter().map(|chunk| chunk.len()).sum::<usize>();
        taken
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
    fn gathered_slices_are_joined_and_padded() {
        let buffer = Buffer::gathered([&b"ab"[..], b"", b"cde"]);
        assert!(Buffer::is_aligned(&buffer));
        assert_eq!(buffer.len(), ALIGNMENT);
        assert_eq!(&buffer[..6], b"abcde\0");
        assert!(Buffer::gathered([]).is_empty());
    }

    #[test]
    fn bytes_of_a_buffer_share_its_memory() {
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

    #[test]
    fn memory_is_reused_after_the_last_slice_is_dropped() {
        let buffers = Buffers::new(4 << 20);
        let buffer = buffers.take(1 << 20);
        assert!(Buffer::is_aligned(&buffer));
        let at = buffer.as_ptr();
        let bytes = Bytes::from(buffer);
        let part = bytes.slice(100..200);
        drop(bytes);
        assert_ne!(buffers.take(1 << 20).as_ptr(), at, "a slice of the memory is still in use");
        drop(part);
        assert_eq!(buffers.take(1 << 20).as_ptr(), at);
        let smaller = buffers.take((1 << 20) - ALIGNMENT);
        assert_eq!(smaller.len(), (1 << 20) - ALIGNMENT);
        assert_eq!(smaller.as_ptr(), at, "a slightly shorter buffer reuses it");
    }

    #[test]
    fn a_filled_buffer_is_padded_with_zeros() {
        let buffers = Buffers::new(4 << 20);
        buffers.take(128 << 10).fill(7);
        let mut filling = buffers.fill(100 << 10, BLOCK_BYTES);
        filling.push(b"abc");
        filling.pad();
        filling.push(b"def");
        assert_eq!(filling.len(), ALIGNMENT + 3);
        assert_eq!(filling.room(), (100 << 10) - ALIGNMENT - 3);
        let buffer = filling.finish();
        assert!(Buffer::is_aligned(&buffer));
        assert_eq!(buffer.len(), 2 * ALIGNMENT);
        let expected: Vec<u8> =
            [b"abc", b"def"].iter().flat_map(|bytes| [&bytes[..], &[0; ALIGNMENT - 3]].concat()).collect();
        assert_eq!(buffer[..], expected);
    }

    #[test]
    fn no_more_than_the_limit_is_kept() {
        let buffers = Buffers::new(3 << 20);
        let taken: Vec<_> = (0..8).map(|_| buffers.take(1 << 20)).collect();
        drop(taken);
        assert_eq!(buffers.0.lock().len_bytes, 2 << 20, "only whole huge pages are kept");
        drop(buffers.take(4 << 20));
        assert_eq!(buffers.0.lock().len_bytes, 0);
    }

    #[test]
    fn half_a_huge_page_is_not_kept() {
        let buffers = Buffers::new(2 << 20);
        let [one, sibling_of_one, other, sibling_of_other] = [(); 4].map(|()| buffers.take(1 << 20));
        drop([one, other, sibling_of_other]);
        assert_eq!(buffers.0.lock().len_bytes, 2 << 20);
        drop(sibling_of_one);
        assert_eq!(buffers.0.lock().len_bytes, 2 << 20);
        let again = [(); 2].map(|()| buffers.take(1 << 20));
        assert_eq!(buffers.0.lock().len_bytes, 0, "the two halves of one page are kept: {again:?}");
    }

    #[test]
    fn buffers_outlive_their_pool() {
        let buffers = Buffers::new(1 << 20);
        let buffer = buffers.take(128 << 10);
        drop(buffers);
        assert_eq!(buffer.len(), 128 << 10);
    }
}
