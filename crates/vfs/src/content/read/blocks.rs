//! The block cache: ranges of immutable objects in memory, bounded.
//!
//! A block is inserted before its bytes have arrived, so that two readers share one request; it can be evicted once they have.
//! A file has blocks of every object that it consists of; blocks of an object that the file no longer uses are evicted when
//! room is needed.
//!
//! Invariant: blocks hold at most the budget, except for what a single read needs to make progress.

use bytes::Bytes;
use meta::Ino;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use store::{ETag, StoreError};
use tokio::sync::Notify;

use crate::content::budget::{Budget, Held};
use crate::content::slab::SLAB_BYTES;

/// A range of an object, cached or being fetched.
#[derive(Debug)]
pub(crate) struct Block {
    /// The range of the object.
    pub(crate) range: Range<u64>,
    /// The bytes, or why they could not be fetched; not set while the block is fetched.
    outcome: OnceLock<Result<Bytes, Arc<StoreError>>>,
    /// Notified when the outcome is set.
    completed: Notify,
    /// Whether a reader found the block since eviction last examined it.
    used: AtomicBool,
    _held: Held,
}

impl Block {
    /// Waits for the bytes.
    pub(crate) async fn bytes(&self) -> Result<Bytes, Arc<StoreError>> {
        loop {
            let completed = self.completed.notified();
            if let Some(outcome) = self.outcome.get() {
                return outcome.clone();
            }
            completed.await;
        }
    }

    /// Sets the bytes, or the error of the fetch, and wakes all waiters. Only the first call has an effect.
    pub(crate) fn complete(&self, outcome: Result<Bytes, Arc<StoreError>>) {
        if let Ok(bytes) = &outcome {
            let wanted = self.range.end - self.range.start;
            assert_eq!(
                bytes.len() as u64,
                wanted,
                "a block holds all bytes of its range: readers cut it by offset"
            );
        }
        let _ = self.outcome.set(outcome);
        self.completed.notify_waiters();
    }

    /// Returns the bytes if they are there.
    pub(crate) fn complete_bytes(&self) -> Option<Bytes> {
        self.outcome.get()?.as_ref().ok().cloned()
    }

    fn is_complete(&self) -> bool {
        self.outcome.get().is_some()
    }
}

/// All cached blocks of a mount.
#[derive(Debug)]
pub(crate) struct Blocks {
    budget: Budget,
    inner: Mutex<Inner>,
    /// Bytes of reads that were cached, and of reads that waited for the store.
    hit_bytes: AtomicU64,
    missed_bytes: AtomicU64,
}

/// Minimum length of the queue before dropped blocks are removed from it.
const SWEEP_AT_MIN: usize = 1024;

#[derive(Debug, Default)]
struct Inner {
    /// The cached objects of each file, by etag.
    files: HashMap<Ino, HashMap<ETag, Object>>,
    /// Length of the queue at which dropped blocks are removed from it.
    sweep_at: usize,
    /// Blocks in order of insertion; eviction starts at the front.
    queue: VecDeque<(Ino, Weak<Block>)>,
}

/// The blocks of one object by their offset.
type Object = BTreeMap<u64, Arc<Block>>;

impl Blocks {
    pub(crate) fn new(budget: Budget) -> Self {
        Self {
            budget,
            inner: Mutex::default(),
            hit_bytes: AtomicU64::new(0),
            missed_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.budget.held_bytes()
    }

    /// Counts a read of `range` from blocks: the bytes that are there, and those for which the read waits.
    pub(crate) fn count_read(&self, blocks: &[Arc<Block>], range: &Range<u64>) {
        let (mut there, mut coming) = (0, 0);
        for block in blocks {
            let bytes = block.range.end.min(range.end).saturating_sub(block.range.start.max(range.start));
            *if block.is_complete() { &mut there } else { &mut coming } += bytes;
        }
        self.hit_bytes.fetch_add(there, Ordering::Relaxed);
        self.missed_bytes.fetch_add(coming, Ordering::Relaxed);
    }

    /// Returns the bytes of all reads that were in memory, and of those that had to be waited for.
    pub(crate) fn read_counts(&self) -> (u64, u64) {
        (self.hit_bytes.load(Ordering::Relaxed), self.missed_bytes.load(Ordering::Relaxed))
    }

    /// Returns how many bytes one of `readers` readers may read ahead.
    pub(crate) fn window_bytes(&self, readers: usize) -> u64 {
        // Whole slabs, so that blocks and large reads have the same ends.
        (self.budget.limit_bytes() / 2 / readers.max(1) as u64).next_multiple_of(SLAB_BYTES as u64)
    }

    /// Returns the blocks that cover the beginning of `range`, ascending and without a gap; they may end before `range` does.
    pub(crate) fn find(&self, ino: Ino, etag: &ETag, range: &Range<u64>) -> Vec<Arc<Block>> {
        let inner = self.lock();
        let Some(object) = inner.object(ino, etag) else { return Vec::new() };
        let mut found = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let Some((_, block)) = object.range(..=at).next_back().filter(|(_, c)| c.range.end > at) else {
                break;
            };
            block.used.store(true, Ordering::Relaxed);
            at = block.range.end;
            found.push(block.clone());
        }
        found
    }

    /// Inserts blocks of at most `block_bytes` for the parts of `range` that are neither cached nor being fetched; the
    /// caller fetches the blocks returned. Blocks that begin before `needed_until` (the end of the bytes that a read
    /// waits for) are always inserted, later ones only while there is memory.
    pub(crate) fn reserve(
        &self,
        ino: Ino,
        etag: &ETag,
        range: Range<u64>,
        needed_until: u64,
        block_bytes: u64,
    ) -> Vec<Arc<Block>> {
        let mut inner = self.lock();
        let mut reserved = Vec::new();
        for gap in inner.gaps(ino, etag, range) {
            let mut start = gap.start;
            while start < gap.end {
                // Blocks end at multiples of their maximum size, so that an aligned read finds its bytes in one.
                let end = (start / block_bytes * block_bytes + block_bytes).min(gap.end);
                let Some(held) = self.make_room(&mut inner, end - start, start < needed_until) else {
                    return reserved;
                };
                let block = Arc::new(Block {
                    range: start..end,
                    outcome: OnceLock::new(),
                    completed: Notify::new(),
                    used: AtomicBool::new(false),
                    _held: held,
                });
                inner.insert(ino, etag, block.clone());
                reserved.push(block);
                start = end;
            }
        }
        reserved
    }

    /// Caches bytes that did not come through a fetch, if there is room.
    pub(crate) fn insert(&self, ino: Ino, etag: &ETag, bytes: Bytes) {
        for block in self.reserve(ino, etag, 0..bytes.len() as u64, 0, bytes.len().max(1) as u64) {
            let range = block.range.start as usize..block.range.end as usize;
            block.complete(Ok(bytes.slice(range)));
        }
    }

    /// Drops blocks that failed, so that the next reader fetches them again.
    pub(crate) fn discard(&self, ino: Ino, failed: &[Arc<Block>]) {
        let mut inner = self.lock();
        failed.iter().for_each(|block| inner.remove(ino, block));
    }

    /// Drops the blocks of an object before `end`. Buffers that are reused at once are still in the processor's cache.
    pub(crate) fn drop_before(&self, ino: Ino, etag: &ETag, end: u64) {
        let mut inner = self.lock();
        let Some(object) = inner.files.get_mut(&ino).and_then(|file| file.get_mut(etag)) else { return };
        while let Some(first) = object.first_entry().filter(|first| first.get().range.end <= end) {
            first.remove();
        }
        inner.prune(ino, etag);
    }

    /// Moves the blocks of an object to its new tag, under which it has the same bytes.
    pub(crate) fn retag(&self, ino: Ino, before: &ETag, now: &ETag) {
        let mut inner = self.lock();
        let Some(file) = inner.files.get_mut(&ino) else { return };
        let Some(object) = file.remove(before) else { return };
        // Blocks still being fetched stay under the old tag: the object may be gone from its old key.
        let (there, coming): (Object, Object) =
            object.into_iter().partition(|(_, block)| matches!(block.outcome.get(), Some(Ok(_))));
        for (etag, blocks) in [(before, coming), (now, there)] {
            if !blocks.is_empty() {
                file.entry(etag.clone()).or_insert(blocks);
            }
        }
        inner.prune(ino, before);
    }

    /// Drops all blocks of a file.
    pub(crate) fn forget(&self, ino: Ino) {
        self.lock().files.remove(&ino);
    }

    /// Evicts blocks until the cache is within its share.
    pub(crate) fn trim(&self) {
        let mut inner = self.lock();
        while self.budget.held_bytes() > self.budget.limit_bytes() && inner.evict_one() {}
    }

    /// Takes memory for a block, and evicts blocks until there is enough. `None` if no block can be evicted, unless the
    /// block is one that a reader must have.
    fn make_room(&self, inner: &mut Inner, bytes: u64, is_needed: bool) -> Option<Held> {
        loop {
            if let Some(held) = self.budget.try_hold(bytes) {
                return Some(held);
            }
            if !inner.evict_one() {
                return is_needed.then(|| self.budget.hold_beyond_limit(bytes));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn object(&self, ino: Ino, etag: &ETag) -> Option<&Object> {
        self.files.get(&ino)?.get(etag)
    }

    /// Returns the parts of a range that are neither cached nor being fetched.
    fn gaps(&self, ino: Ino, etag: &ETag, range: Range<u64>) -> Vec<Range<u64>> {
        let Some(object) = self.object(ino, etag) else { return vec![range] };
        let mut gaps = Vec::new();
        let mut at = range.start;
        let before = object.range(..=at).next_back();
        for block in before.into_iter().chain(object.range(at.saturating_add(1)..range.end)).map(|(_, c)| c) {
            if block.range.end <= at {
                continue;
            }
            if block.range.start > at {
                gaps.push(at..block.range.start);
            }
            at = block.range.end;
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    fn insert(&mut self, ino: Ino, etag: &ETag, block: Arc<Block>) {
        let object = self.files.entry(ino).or_default().entry(etag.clone()).or_default();
        object.insert(block.range.start, block.clone());
        self.queue.push_back((ino, Arc::downgrade(&block)));
        if self.queue.len() >= self.sweep_at {
            self.queue.retain(|(_, block)| block.strong_count() > 0);
            self.sweep_at = (self.queue.len() * 2).max(SWEEP_AT_MIN);
        }
    }

    /// Evicts the oldest block that has its bytes and was not used since the last pass (second chance). Returns whether
    /// there was one.
    fn evict_one(&mut self) -> bool {
        for _ in 0..self.queue.len() * 2 {
            let Some((ino, queued)) = self.queue.pop_front() else { return false };
            let Some(block) = queued.upgrade() else { continue };
            if !block.is_complete() || block.used.swap(false, Ordering::Relaxed) {
                self.queue.push_back((ino, queued));
                continue;
            }
            self.remove(ino, &block);
            return true;
        }
        false
    }

    /// Removes a block. All tags are searched, as its object may have been retagged since.
    fn remove(&mut self, ino: Ino, block: &Arc<Block>) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        for object in file.values_mut() {
            if object.get(&block.range.start).is_some_and(|there| Arc::ptr_eq(there, block)) {
                object.remove(&block.range.start);
            }
        }
        file.retain(|_, object| !object.is_empty());
        if file.is_empty() {
            self.files.remove(&ino);
        }
    }

    /// Removes an object without blocks and a file without objects.
    fn prune(&mut self, ino: Ino, etag: &ETag) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        if file.get(etag).is_some_and(Object::is_empty) {
            file.remove(etag);
        }
        if file.is_empty() {
            self.files.remove(&ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_limit::{MemoryLimit, Share};

    fn etag(text: &str) -> ETag {
        ETag::new(text)
    }

    /// Returns a cache with a share of `limit_bytes`, or a few more.
    fn cache(limit_bytes: u64) -> (Blocks, Arc<MemoryLimit>) {
        let memory = Arc::new(MemoryLimit::new(limit_bytes.div_ceil(22) * 100));
        (Blocks::new(Budget::new(memory.clone(), Share::Reads)), memory)
    }

    fn ranges(blocks: &[Arc<Block>]) -> Vec<Range<u64>> {
        blocks.iter().map(|block| block.range.clone()).collect()
    }

    #[test]
    fn only_gaps_are_reserved() {
        let (blocks, _) = cache(1000);
        assert_eq!(blocks.reserve(Ino(2), &etag("a"), 10..20, 20, 100)[0].range, 10..20);
        assert_eq!(ranges(&blocks.reserve(Ino(2), &etag("a"), 0..30, 30, 100)), [0..10, 20..30]);
        assert_eq!(ranges(&blocks.find(Ino(2), &etag("a"), &(5..25))), [0..10, 10..20, 20..30]);
        assert!(blocks.find(Ino(2), &etag("b"), &(5..25)).is_empty());
    }

    #[test]
    fn memory_is_bounded_but_a_read_goes_on() {
        let (blocks, _) = cache(100);
        let first = blocks.reserve(Ino(2), &etag("a"), 0..200, 50, 50);
        assert_eq!(ranges(&first), [0..50, 50..100]);
        assert!(
            blocks.reserve(Ino(3), &etag("a"), 0..50, 0, 50).is_empty(),
            "blocks being fetched are not evicted"
        );
        assert_eq!(
            blocks.reserve(Ino(3), &etag("a"), 0..50, 1, 50).len(),
            1,
            "blocks that a read waits for exceed the budget"
        );
        first.iter().for_each(|block| block.complete(Ok(Bytes::from_static(&[0; 50]))));
        drop(first);
        assert_eq!(blocks.reserve(Ino(4), &etag("a"), 0..50, 0, 50).len(), 1);
        assert!(blocks.held_bytes() <= 150);
    }

    /// After a rename moved an object, its file's blocks were fetched again, because the copy has another tag.
    #[test]
    fn cached_blocks_move_to_the_new_tag() {
        let (blocks, _) = cache(1000);
        let reserved = blocks.reserve(Ino(2), &etag("a"), 0..30, 30, 10);
        reserved[..2].iter().for_each(|block| block.complete(Ok(Bytes::from_static(&[0; 10]))));
        blocks.retag(Ino(2), &etag("a"), &etag("b"));
        assert_eq!(ranges(&blocks.find(Ino(2), &etag("b"), &(0..30))), [0..10, 10..20]);
        assert_eq!(ranges(&blocks.find(Ino(2), &etag("a"), &(20..30))), [20..30]);
        blocks.discard(Ino(2), &reserved);
        drop(reserved);
        assert_eq!(blocks.held_bytes(), 0);
    }

    #[test]
    fn blocks_beyond_a_smaller_share_are_evicted() {
        let (blocks, memory) = cache(1000);
        for number in 0..10 {
            blocks.insert(Ino(number), &etag("a"), Bytes::from_static(&[0; 100]));
        }
        assert_eq!(blocks.held_bytes(), 1000);
        memory.reserve(u64::MAX);
        blocks.trim();
        assert_eq!(blocks.held_bytes(), 500);
        assert!(blocks.find(Ino(0), &etag("a"), &(0..100)).is_empty());
        assert_eq!(blocks.find(Ino(9), &etag("a"), &(0..100)).len(), 1);
    }

    #[test]
    fn reads_are_counted_by_whether_they_wait() {
        let (blocks, _) = cache(1000);
        blocks.insert(Ino(2), &etag("a"), Bytes::from_static(&[0; 100]));
        blocks.reserve(Ino(2), &etag("a"), 100..200, 200, 100);
        let found = blocks.find(Ino(2), &etag("a"), &(90..130));
        blocks.count_read(&found, &(90..130));
        assert_eq!(blocks.read_counts(), (10, 30));
    }

    #[tokio::test]
    async fn a_failed_block_is_fetched_again() {
        let (blocks, _) = cache(100);
        let failed = blocks.reserve(Ino(2), &etag("a"), 0..10, 10, 10);
        failed[0].complete(Err(Arc::new(StoreError::Unavailable("down".into()))));
        assert!(failed[0].bytes().await.is_err());
        blocks.discard(Ino(2), &failed);
        assert_eq!(blocks.reserve(Ino(2), &etag("a"), 0..10, 10, 10).len(), 1);
    }
}
