//! A new file whose content is entirely in memory.

use bytes::{Bytes, BytesMut};
use std::ops::Range;
use std::sync::Arc;
use store::Payload;

use crate::content::budget::{Budget, Held};
use crate::content::pin::Pin;
use crate::content::slab::{SLAB_BYTES, Slab, SlabPool};

/// A file's content in slabs, or as frozen slabs while it is stored; all are full except the last.
#[derive(Debug)]
pub(crate) struct Memory {
    /// The content that this content replaces.
    pub(crate) base: Option<Arc<Pin>>,
    slabs: Vec<Slab>,
    size: u64,
    /// Memory that is reserved for the slabs.
    held: Held,
    /// The content in place of the slabs, from the beginning of an upload until the content is named or changed.
    frozen: Payload,
}

impl Memory {
    /// Creates an empty file, if there is memory for its first slab.
    pub(crate) fn begin(budget: &Budget, base: Option<Arc<Pin>>) -> Option<Self> {
        Some(Self {
            base,
            slabs: Vec::new(),
            size: 0,
            held: budget.try_hold(SLAB_BYTES as u64)?,
            frozen: Payload::default(),
        })
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size
    }

    /// Reserves memory for a content of `size` bytes; returns whether there is enough.
    pub(crate) fn reserve(&mut self, size: u64) -> bool {
        self.held.try_grow(size.next_multiple_of(SLAB_BYTES as u64))
    }

    /// Writes into reserved memory.
    pub(crate) fn write(&mut self, pool: &SlabPool, offset: u64, data: &[u8]) {
        self.thaw(pool);
        let end = offset + data.len() as u64;
        if end > self.size {
            self.resize(pool, end);
        }
        let (mut at, mut rest) = (offset as usize, data);
        while !rest.is_empty() {
            let within = at % SLAB_BYTES;
            let take = rest.len().min(SLAB_BYTES - within);
            self.slabs[at / SLAB_BYTES].write_at(within, &rest[..take]);
            at += take;
            rest = &rest[take..];
        }
    }

    /// Truncates the content or extends it with zeros, in reserved memory.
    pub(crate) fn resize(&mut self, pool: &SlabPool, size: u64) {
        self.thaw(pool);
        let count = (size as usize).div_ceil(SLAB_BYTES);
        self.slabs.truncate(count);
        self.slabs.resize_with(count, || pool.take());
        let last = (size as usize).saturating_sub(1) % SLAB_BYTES + 1;
        let first_changed = (self.size as usize / SLAB_BYTES).min(count.saturating_sub(1));
        for (index, slab) in self.slabs.iter_mut().enumerate().skip(first_changed) {
            slab.resize(if index + 1 == count { last } else { SLAB_BYTES });
        }
        self.size = size;
    }

    /// Returns the bytes of a range, as far as the content reaches.
    pub(crate) fn read(&self, range: Range<u64>) -> Bytes {
        let range = range.start.min(self.size)..range.end.min(self.size);
        let mut out = BytesMut::with_capacity((range.end - range.start) as usize);
        let mut at = range.start as usize;
        for piece in self.pieces().skip(at / SLAB_BYTES) {
            let within = at % SLAB_BYTES;
            let take = (piece.len() - within).min(range.end as usize - at);
            out.extend_from_slice(&piece[within..within + take]);
            at += take;
            if at == range.end as usize {
                break;
            }
        }
        out.freeze()
    }

    /// Returns the content in order, as slices.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.slabs.iter().map(AsRef::as_ref).chain(self.frozen.pieces().iter().map(AsRef::as_ref))
    }

    /// Freezes the content for an upload, which a retry may send again, and returns its bytes. They stay here until they are thawed or
    /// dropped, also if the upload is dropped; the memory stays reserved.
    pub(crate) fn freeze(&mut self) -> Payload {
        for slab in self.slabs.drain(..) {
            self.frozen.push(slab.freeze());
        }
        self.frozen.clone()
    }

    /// Thaws the content, so that it can be changed. Copies it, because a failed request may still hold the bytes.
    pub(crate) fn thaw(&mut self, pool: &SlabPool) {
        let frozen = std::mem::take(&mut self.frozen);
        if frozen.is_empty() {
            return;
        }
        let size = std::mem::take(&mut self.size);
        for piece in frozen.pieces() {
            self.write(pool, self.size, piece);
        }
        debug_assert_eq!(self.size, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_limit::{MemoryLimit, Share};

    fn empty(budget_bytes: u64) -> (SlabPool, Memory) {
        let limit = Arc::new(MemoryLimit::new(budget_bytes * 5));
        let memory = Memory::begin(&Budget::new(limit.clone(), Share::Writes), None).unwrap();
        (SlabPool::new(limit), memory)
    }

    #[test]
    fn gaps_between_writes_read_as_zeros() {
        let (pool, mut memory) = empty(8 << 20);
        let far = SLAB_BYTES as u64 + 10;
        memory.write(&pool, 2, b"ab");
        memory.write(&pool, far, b"cd");
        assert_eq!(memory.size_bytes(), far + 2);
        assert_eq!(&memory.read(0..5)[..], b"\0\0ab\0");
        assert_eq!(&memory.read(far - 1..far + 9)[..], b"\0cd");
        memory.resize(&pool, 3);
        memory.resize(&pool, 5);
        assert_eq!(&memory.read(0..9)[..], b"\0\0a\0\0");
    }

    #[test]
    fn a_reservation_beyond_the_budget_is_refused() {
        let (_, mut memory) = empty(2 << 20);
        assert!(memory.reserve(2 << 20));
        assert!(!memory.reserve(3 << 20));
    }

    #[test]
    fn a_failed_upload_gives_the_content_back() {
        let (pool, mut memory) = empty(8 << 20);
        memory.write(&pool, 0, &vec![3; SLAB_BYTES + 5]);
        let payload = memory.freeze();
        assert_eq!(payload.to_bytes(), vec![3; SLAB_BYTES + 5]);
        assert_eq!(memory.read(0..u64::from(u32::MAX)), vec![3; SLAB_BYTES + 5], "frozen");
        memory.thaw(&pool);
        assert_eq!(memory.size_bytes(), SLAB_BYTES as u64 + 5);
        assert_eq!(memory.read(0..u64::from(u32::MAX)), vec![3; SLAB_BYTES + 5]);
    }

    #[test]
    fn frozen_content_can_be_changed_and_frozen_again() {
        let (pool, mut memory) = empty(8 << 20);
        memory.write(&pool, 0, b"before");
        memory.freeze();
        memory.write(&pool, 6, b" and after");
        assert_eq!(memory.freeze().to_bytes(), &b"before and after"[..]);
        assert_eq!(memory.freeze().to_bytes(), &b"before and after"[..]);
        memory.resize(&pool, 6);
        assert_eq!(&memory.read(0..100)[..], b"before");
    }
}
