//! Read cache: bytes of objects that were read or stored recently. The device is used without a page cache.
//!
//! Invariants: cached bytes were compared with their checksums, or came from the client that stored them, and have at most
//! [`CACHED_BYTES_MAX`]. The key contains the number of the write that stored the bytes, so an entry never becomes stale, whatever
//! happens to the blocks. Bytes that are still being stored have a temporary number, and get the number of their write at the commit.

use crate::engine::CacheRekey;
use crate::error::Result;
use crate::format::{Body, RunSlice};
use bytes::Bytes;
use quick_cache::sync::DefaultLifecycle;
use quick_cache::{OptionsBuilder, Weighter, sync};
use sst::Spread;
use std::fmt;
use std::hash::BuildHasherDefault;

/// The most bytes of one entry.
pub(super) const CACHED_BYTES_MAX: u64 = 1 << 20;

/// Memory of an entry beyond its bytes.
const OVERHEAD_BYTES: u64 = 256;

/// Limits of the number and size of shards: an entry must be smaller than a shard, and few shards suffice for few threads.
const SHARDS_MAX: u64 = 16;
const SHARD_BYTES_MIN: u64 = 32 * CACHED_BYTES_MAX;

/// The expected average length of an entry.
const ENTRY_BYTES_EXPECTED: u64 = 64 << 10;

/// The key of an entry: the write that stored an object, and a range of one of its sources, which are its inline data
/// or its runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CachedRange {
    pub(super) write: u64,
    /// The index of the slice among those of the object's body; 0 for inline data.
    pub(super) source: u32,
    /// Length of the range in bytes.
    pub(super) len: u32,
    /// Position of the range in the source's data.
    pub(super) from: u64,
}

impl CachedRange {
    /// Returns the range of all inline data of an object.
    pub(super) fn inline(write: u64, len: u32) -> Self {
        Self { write, source: 0, len, from: 0 }
    }

    /// Returns the ranges in which one of an object's runs is read, from its beginning to its end.
    fn of_run(write: u64, source: u32, slice: &RunSlice) -> impl Iterator<Item = Self> {
        let len_bytes = slice.data_bytes;
        (0..len_bytes).step_by(CACHED_BYTES_MAX as usize).map(move |from| {
            let len = CACHED_BYTES_MAX.min(len_bytes - from) as u32;
            Self { write, source, len, from }
        })
    }
}

/// A bounded cache of objects' bytes. Bytes that are read again stay longer than bytes that are read once, so a scan does not evict
/// them. Its contents follow from the calls alone, without a clock.
pub(super) struct ReadCache(sync::Cache<CachedRange, Bytes, ByteWeighter, BuildHasherDefault<Spread>>);

impl ReadCache {
    /// Makes a cache of at most `bytes`; `None` for 0.
    pub(super) fn new(bytes: u64) -> Option<Self> {
        let options = OptionsBuilder::new()
            .shards((bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX) as usize)
            .estimated_items_capacity((bytes / ENTRY_BYTES_EXPECTED) as usize)
            .weight_capacity(bytes)
            .build()
            .ok()?;
        let (hasher, lifecycle) = (BuildHasherDefault::default(), DefaultLifecycle::default());
        (bytes > 0).then(|| Self(sync::Cache::with_options(options, ByteWeighter, hasher, lifecycle)))
    }

    pub(super) fn get(&self, range: &CachedRange) -> Option<Bytes> {
        self.0.get(range)
    }

    /// Adds bytes that were not in the cache. They must own their memory: it stays as long as the entry.
    pub(super) fn insert(&self, range: CachedRange, bytes: Bytes) {
        self.0.insert(range, bytes);
    }

    /// Adds bytes that are written to a run, if readers will ask for exactly this range.
    pub(super) fn insert_data(&self, range: CachedRange, bytes: Bytes) {
        let is_read_at_once = range.from.is_multiple_of(CACHED_BYTES_MAX) && range.len > 0;
        if is_read_at_once && u64::from(range.len) <= CACHED_BYTES_MAX {
            self.insert(range, copy_if_short(bytes));
        }
    }

    /// Moves cached bytes of runs from their temporary numbers to the number of the write that was committed.
    pub(super) fn rekey(&self, rekey: &CacheRekey) {
        let numbers = rekey
            .old_numbers
            .iter()
            .flat_map(|&(number, runs)| (0_u32..).take(runs).map(move |run| (number, run)));
        for ((number, run), (source, slice)) in numbers.zip((0..).zip(&rekey.slices)) {
            let after = CachedRange::of_run(rekey.write, source, slice);
            for (before, after) in CachedRange::of_run(number, run, slice).zip(after) {
                if let Some((_, bytes)) = self.0.remove(&before) {
                    self.insert(after, bytes);
                }
            }
        }
    }

    /// Drops the bytes of a write whose object was removed.
    pub(super) fn remove(&self, write: u64, body: &Body) {
        match body {
            Body::Inline(inline) => drop(self.0.remove(&CachedRange::inline(write, inline.len))),
            Body::Runs(slices) => {
                for (source, slice) in (0..).zip(slices) {
                    CachedRange::of_run(write, source, slice).for_each(|range| drop(self.0.remove(&range)));
                }
            }
            Body::DeleteMarker => {}
        }
    }

    /// Returns the cached bytes, or those that `read` returns. Concurrent calls for the same range wait for one read, so `read` must
    /// complete even if its caller is cancelled.
    pub(super) async fn get_or_read(
        &self,
        range: &CachedRange,
        read: impl Future<Output = Result<Bytes>>,
    ) -> Result<Bytes> {
        self.0.get_or_insert_async(range, read).await
    }
}

/// Copies short bytes to memory of their own, as they may be a part of a much longer buffer.
pub(super) fn copy_if_short(bytes: Bytes) -> Bytes {
    if (bytes.len() as u64) < CACHED_BYTES_MAX { Bytes::copy_from_slice(&bytes) } else { bytes }
}

impl fmt::Debug for ReadCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadCache").field("len_bytes", &self.0.weight()).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
struct ByteWeighter;

impl Weighter<CachedRange, Bytes> for ByteWeighter {
    fn weight(&self, _: &CachedRange, bytes: &Bytes) -> u64 {
        bytes.len() as u64 + OVERHEAD_BYTES
    }
}
