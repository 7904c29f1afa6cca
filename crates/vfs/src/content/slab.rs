//! Recycled buffers, so that bulk data does not touch fresh memory.
//!
//! A page fault and a zeroed page for each 4 KiB cost more than copying the bytes. A slab returns to its pool when the last
//! `Bytes` made of it is dropped. The pool keeps no more of them than the shares for reads and writes allow.

use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::memory_limit::{MemoryLimit, Share};

/// Length of a slab in bytes: the largest FUSE request.
pub(crate) const SLAB_BYTES: usize = 1 << 20;

/// A pool of free slabs.
#[derive(Debug, Clone)]
pub(crate) struct SlabPool {
    free: Arc<Mutex<Vec<Box<[u8]>>>>,
    memory: Arc<MemoryLimit>,
}

/// A buffer of [`SLAB_BYTES`] with a filled prefix.
#[derive(Debug)]
pub(crate) struct Slab {
    /// The buffer; `None` only while it is dropped.
    bytes: Option<Box<[u8]>>,
    /// Length of the filled prefix.
    filled: usize,
    pool: SlabPool,
}

impl SlabPool {
    pub(crate) fn new(memory: Arc<MemoryLimit>) -> Self {
        Self { free: Arc::default(), memory }
    }

    /// Returns an empty slab: a recycled one, or a new one if none is free.
    pub(crate) fn take(&self) -> Slab {
        let recycled = self.free().pop();
        let bytes = recycled.unwrap_or_else(|| vec![0; SLAB_BYTES].into_boxed_slice());
        Slab { bytes: Some(bytes), filled: 0, pool: self.clone() }
    }

    /// Keeps the memory of a slab for the next one, unless enough is free.
    fn put_back(&self, bytes: Box<[u8]>) {
        let mut free = self.free();
        if free.len() < self.free_max() {
            free.push(bytes);
        }
    }

    /// Drops free slabs beyond what the shares allow.
    pub(crate) fn trim(&self) {
        self.free().truncate(self.free_max());
    }

    /// Returns the maximum number of free slabs.
    fn free_max(&self) -> usize {
        let bytes = self.memory.share_bytes(Share::Reads) + self.memory.share_bytes(Share::Writes);
        (bytes as usize / SLAB_BYTES).max(1)
    }

    fn free(&self) -> MutexGuard<'_, Vec<Box<[u8]>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slab {
    /// Appends as much of `data` as fits; returns how much that was.
    pub(crate) fn fill(&mut self, data: &[u8]) -> usize {
        let Some(bytes) = self.bytes.as_deref_mut() else { return 0 };
        let take = data.len().min(SLAB_BYTES - self.filled);
        bytes[self.filled..self.filled + take].copy_from_slice(&data[..take]);
        self.filled += take;
        take
    }

    /// Writes at `offset` and fills a gap before it with zeros. `offset + data.len()` must not exceed the slab.
    pub(crate) fn write_at(&mut self, offset: usize, data: &[u8]) {
        assert!(offset + data.len() <= SLAB_BYTES, "a write must not exceed its slab");
        let Some(bytes) = self.bytes.as_deref_mut() else { return };
        if offset > self.filled {
            bytes[self.filled..offset].fill(0);
        }
        bytes[offset..offset + data.len()].copy_from_slice(data);
        self.filled = self.filled.max(offset + data.len());
    }

    /// Makes the filled prefix `len` bytes long, which `read` writes. Returns whether it did; if not, nothing is filled.
    pub(crate) fn fill_by(&mut self, len: usize, read: impl FnOnce(&mut [u8]) -> bool) -> bool {
        let is_filled = self.bytes.as_deref_mut().is_some_and(|bytes| read(&mut bytes[..len]));
        self.filled = if is_filled { len } else { 0 };
        is_filled
    }

    /// Truncates the filled prefix, or extends it with zeros.
    pub(crate) fn resize(&mut self, len: usize) {
        if len > self.filled {
            self.write_at(len, &[]);
        }
        self.filled = len;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.filled == SLAB_BYTES
    }

    /// Returns the filled prefix as shared bytes.
    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Slab {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_deref().map_or(&[], |bytes| &bytes[..self.filled])
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if let Some(bytes) = self.bytes.take() {
            self.pool.put_back(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slab_returns_when_its_last_reader_is_gone() {
        let pool = SlabPool::new(Arc::new(MemoryLimit::new(0)));
        let mut slab = pool.take();
        assert_eq!(slab.fill(b"abc"), 3);
        let bytes = slab.freeze();
        let tail = bytes.slice(1..);
        drop(bytes);
        assert_eq!(pool.free.lock().unwrap().len(), 0);
        assert_eq!(&tail[..], b"bc");
        drop(tail);
        assert_eq!(pool.free.lock().unwrap().len(), 1);
        assert!(pool.take().as_ref().is_empty());
    }

    #[test]
    fn gaps_and_growth_are_zeros_also_in_a_recycled_slab() {
        let pool = SlabPool::new(Arc::new(MemoryLimit::new(0)));
        let mut dirty = pool.take();
        dirty.fill(&[7; 100]);
        drop(dirty);
        let mut slab = pool.take();
        slab.write_at(3, b"x");
        slab.resize(2);
        slab.resize(6);
        assert_eq!(slab.as_ref(), [0, 0, 0, 0, 0, 0]);
        slab.write_at(1, b"yz");
        assert_eq!(slab.as_ref(), [0, b'y', b'z', 0, 0, 0]);
    }

    #[test]
    fn a_full_slab_takes_no_more() {
        let mut slab = SlabPool::new(Arc::new(MemoryLimit::new(0))).take();
        assert_eq!(slab.fill(&vec![1; SLAB_BYTES - 1]), SLAB_BYTES - 1);
        assert_eq!(slab.fill(b"xy"), 1);
        assert!(slab.is_full());
    }
}
