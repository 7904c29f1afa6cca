//! The caches between the block cache in memory and the store: on the local disk, and below it one that machines share.

use bytes::{Bytes, BytesMut};
use cache::{DiskCache, ObjectId, SEGMENT_BYTES, SharedCache};
use futures_util::StreamExt as _;
use std::ops::Range;
use std::sync::Arc;
use store::{ETag, GetOptions, ObjectKey, ObjectStore, StoreError};
use tokio::sync::Semaphore;

use super::blocks::Block;
use super::buffer::Buffer;
use crate::content::pin::Piece;
use crate::content::slab::SlabPool;

/// Bytes that readers may store at once. A disk that is slower than the store must not slow readers down: what exceeds this is not stored.
const STORING_BYTES_MAX: usize = 32 << 20;
/// Maximum bytes of a request that only fills the disk cache: large, for few requests, and not held in memory.
pub(crate) const WARMED_BYTES_MAX: u64 = 32 * SEGMENT_BYTES;

/// The caches of a mount below its memory.
#[derive(Debug)]
pub(crate) struct Tiers {
    /// The cache on the local disk; without it, the shared one is not used either.
    disk: Option<Arc<DiskCache>>,
    shared: Option<Arc<SharedCache>>,
    storing: Arc<Semaphore>,
}

impl Tiers {
    pub(crate) fn new(disk: Option<Arc<DiskCache>>, shared: Option<Arc<SharedCache>>) -> Arc<Self> {
        Arc::new(Self { disk, shared, storing: Arc::new(Semaphore::new(STORING_BYTES_MAX)) })
    }

    /// Returns whether there is a cache on disk.
    pub(crate) fn has_disk(&self) -> bool {
        self.disk.is_some()
    }

    /// Returns the figures of the cache on disk, if there is one.
    pub(crate) fn disk_counts(&self) -> Option<cache::Counts> {
        self.disk.as_ref().map(|disk| disk.counts())
    }

    /// Returns the figures of the shared cache, if there is one.
    pub(crate) fn shared_counts(&self) -> Option<cache::SharedCounts> {
        self.shared.as_ref().map(|shared| shared.counts())
    }

    /// Returns the identity of an object that can be cached; `None` without a cache. `if_match` is `None` if its key alone identifies
    /// the object.
    pub(crate) fn object(&self, key: &ObjectKey, if_match: Option<&ETag>) -> Option<ObjectId> {
        self.disk.as_ref()?.object(key, if_match)
    }

    /// Completes those of the blocks that are cached. Returns the others.
    pub(crate) async fn fill(
        &self,
        object: ObjectId,
        blocks: Vec<Arc<Block>>,
        slabs: &SlabPool,
    ) -> Vec<Arc<Block>> {
        let missing = self.fill_from_disk(object, blocks, slabs).await;
        self.fill_from_shared(object, missing).await
    }

    async fn fill_from_disk(
        &self,
        object: ObjectId,
        blocks: Vec<Arc<Block>>,
        slabs: &SlabPool,
    ) -> Vec<Arc<Block>> {
        let Some(cache) = self.disk.clone() else { return blocks };
        let (slabs, wanted) = (slabs.clone(), blocks.clone());
        let fill = move || {
            let mut missing = Vec::new();
            for block in wanted {
                let len = (block.range.end - block.range.start) as usize;
                let mut buffer = Buffer::new(&slabs, len);
                match buffer.fill_by(len, |into| cache.read(object, block.range.clone(), into)) {
                    true => block.complete(Ok(buffer.freeze())),
                    false => missing.push(block),
                }
            }
            Ok(missing)
        };
        // The work is lost only if the runtime ends; blocks that it has completed stay complete.
        store::blocking(fill).await.unwrap_or(blocks)
    }

    /// Completes those of the blocks that the shared cache has. Returns the others. A block that lies in two segments is one of them.
    async fn fill_from_shared(&self, object: ObjectId, blocks: Vec<Arc<Block>>) -> Vec<Arc<Block>> {
        if self.shared.is_none() {
            return blocks;
        }
        let mut missing = Vec::new();
        // The segment that the last block was in: several blocks may be in one.
        let mut taken: Option<(u64, Bytes)> = None;
        for block in blocks {
            let number = block.range.start / SEGMENT_BYTES;
            if taken.as_ref().is_none_or(|(taken, _)| *taken != number) {
                taken = self.take_segment(object, &block.range).await.map(|segment| (number, segment));
            }
            let within = |segment: &Bytes| {
                let start = (block.range.start % SEGMENT_BYTES) as usize;
                let end = start + (block.range.end - block.range.start) as usize;
                (end <= segment.len()).then(|| segment.slice(start..end))
            };
            match taken.as_ref().and_then(|(_, segment)| within(segment)) {
                Some(bytes) => block.complete(Ok(bytes)),
                None => missing.push(block),
            }
        }
        missing
    }

    /// Takes the segment in which a range begins from the shared cache, if it has it, and stores it on disk.
    async fn take_segment(&self, object: ObjectId, range: &Range<u64>) -> Option<Bytes> {
        let (disk, shared) = self.disk.clone().zip(self.shared.as_ref())?;
        let number = range.start / SEGMENT_BYTES;
        let segment = shared.read(object, number).await?;
        let copy = segment.clone();
        let _ = store::blocking(move || Ok(disk.store(object, number * SEGMENT_BYTES, &copy))).await;
        Some(segment)
    }

    /// Returns a range of a piece's object if it is on disk.
    pub(crate) async fn read(&self, piece: &Piece, range: Range<u64>) -> Option<Bytes> {
        let cache = self.disk.clone()?;
        let object = cache.object(&piece.object.key, piece.if_match.as_ref())?;
        let read = move || {
            let mut bytes = BytesMut::zeroed((range.end - range.start) as usize);
            Ok(cache.read(object, range, &mut bytes).then(|| bytes.freeze()))
        };
        store::blocking(read).await.ok().flatten()
    }

    /// Stores complete blocks of an object in the background, unless too much is being stored already.
    pub(crate) fn store_blocks(self: &Arc<Self>, object: ObjectId, blocks: Vec<Arc<Block>>, size_bytes: u64) {
        let bytes: u64 = blocks.iter().map(|block| block.range.end - block.range.start).sum();
        let Ok(permit) = self.storing.clone().try_acquire_many_owned(bytes as u32) else { return };
        let me = self.clone();
        tokio::spawn(async move {
            let bytes_of = |block: &Arc<Block>| Some((block.range.start, block.complete_bytes()?));
            let stored = blocks.iter().filter_map(bytes_of).collect();
            // Nothing waits for the outcome: the cache counts failures.
            me.store_bytes(object, stored, size_bytes).await;
            drop((blocks, permit));
        });
    }

    /// Stores ascending and adjacent bytes of an object on disk, each with its offset, and the segments that are complete then in the shared
    /// cache. `size_bytes` is the length of the object. Returns whether the bytes are on disk.
    async fn store_bytes(&self, object: ObjectId, bytes: Vec<(u64, Bytes)>, size_bytes: u64) -> bool {
        let Some(disk) = self.disk.clone() else { return false };
        let ends = bytes.first().zip(bytes.last());
        let Some(range) = ends.map(|(first, last)| first.0..last.0 + last.1.len() as u64) else {
            return true;
        };
        let store = move || Ok(bytes.iter().all(|(start, bytes)| disk.store(object, *start, bytes)));
        let is_stored = store::blocking(store).await.unwrap_or(false);
        if is_stored && self.shared.is_some() {
            for number in range.start / SEGMENT_BYTES..range.end.div_ceil(SEGMENT_BYTES) {
                self.share_segment(object, number, size_bytes).await;
            }
        }
        is_stored
    }

    /// Stores a segment in the shared cache if all of it is on disk.
    async fn share_segment(&self, object: ObjectId, number: u64, size_bytes: u64) {
        let Some((disk, shared)) = self.disk.clone().zip(self.shared.as_ref()) else { return };
        let len = size_bytes.saturating_sub(number * SEGMENT_BYTES).min(SEGMENT_BYTES) as usize;
        if len == 0 {
            return;
        }
        if let Ok(Some(segment)) = store::blocking(move || Ok(disk.segment(object, number, len))).await {
            shared.store(object, number, &segment).await;
        }
    }

    /// Stores a range of a piece's object on disk, unless it is there: from the shared cache or, by requests for adjacent segments together,
    /// from the store. Returns how many bytes were read from the store.
    pub(crate) async fn warm(
        &self,
        store: &dyn ObjectStore,
        piece: &Piece,
        range: Range<u64>,
    ) -> Result<u64, StoreError> {
        let Some(disk) = &self.disk else { return Ok(0) };
        let Some(object) = disk.object(&piece.object.key, piece.if_match.as_ref()) else { return Ok(0) };
        let is_on_disk = async |part: &Range<u64>| {
            let (disk, part) = (disk.clone(), part.clone());
            store::blocking(move || Ok(disk.contains(object, part))).await.unwrap_or(false)
        };
        let mut missing: Vec<Range<u64>> = Vec::new();
        for part in parts(range, SEGMENT_BYTES) {
            if is_on_disk(&part).await
                || self.take_segment(object, &part).await.is_some() && is_on_disk(&part).await
            {
                continue;
            }
            match missing.last_mut() {
                Some(last) if last.end == part.start => last.end = part.end,
                _ => missing.push(part),
            }
        }
        let read_bytes = missing.iter().map(|part| part.end - part.start).sum();
        for part in missing {
            self.copy(store, object, piece, part).await?;
        }
        Ok(read_bytes)
    }

    /// Copies a range of an object from the store to the disk, one segment after the other.
    async fn copy(
        &self,
        store: &dyn ObjectStore,
        object: ObjectId,
        piece: &Piece,
        range: Range<u64>,
    ) -> Result<(), StoreError> {
        let options = GetOptions {
            range: Some(range.clone()),
            if_match: piece.if_match.clone(),
            version: piece.object.version.clone(),
        };
        let found = store.get(&piece.object.key, options).await?;
        let (mut body, mut received) = (found.body, BytesMut::new());
        for part in parts(range, SEGMENT_BYTES) {
            let len = (part.end - part.start) as usize;
            while received.len() < len {
                let ended = || StoreError::Corrupt(format!("'{}' ended early", piece.object.key));
                received.extend_from_slice(&body.next().await.unwrap_or_else(|| Err(ended()))?);
            }
            let bytes = received.split_to(len).freeze();
            if !self.store_bytes(object, vec![(part.start, bytes)], found.meta.size_bytes).await {
                let reason = "the disk cache can store nothing more: its disk is full or fails";
                return Err(StoreError::Unavailable(reason.into()));
            }
        }
        Ok(())
    }
}

/// Cuts a range at the multiples of a length.
pub(crate) fn parts(range: Range<u64>, len: u64) -> impl Iterator<Item = Range<u64>> {
    let first = if range.is_empty() { range.end } else { range.start / len * len };
    (first..range.end)
        .step_by(len as usize)
        .map(move |start| start.max(range.start)..(start + len).min(range.end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_multiples() {
        let cut: Vec<_> = parts(7..31, 10).collect();
        assert_eq!(cut, [7..10, 10..20, 20..30, 30..31]);
        assert_eq!(parts(10..20, 10).collect::<Vec<_>>(), [10..20]);
        assert_eq!(parts(5..5, 10).count(), 0);
    }
}
