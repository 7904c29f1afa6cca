//! What was read of objects lately, in memory: below is no page cache.
//!
//! Invariants: what is kept was compared with its checksums, or came from who stored it, and is no longer than
//! [`KEPT_BYTES_MAX`]; the number of a write says which bytes they are, whatever becomes of the blocks that they lie in, so
//! that nothing here is ever out of date.

use crate::error::Result;
use bytes::Bytes;
use quick_cache::sync::DefaultLifecycle;
use quick_cache::{OptionsBuilder, Weighter, sync};
use sst::Spread;
use std::fmt;
use std::hash::BuildHasherDefault;

/// The most bytes that are kept as one.
pub(super) const KEPT_BYTES_MAX: u64 = 1 << 20;

/// What a stretch costs beside its bytes.
const OVERHEAD_BYTES: u64 = 256;

/// What is kept is smaller than a shard; there are few of them, as there are few threads.
const SHARDS_MAX: u64 = 16;
const SHARD_BYTES_MIN: u64 = 32 * KEPT_BYTES_MAX;

/// What a stretch takes on average, as far as anybody knows before.
const STRETCH_BYTES: u64 = 64 << 10;

/// Bytes of an object: which write stored it, and where in it they lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Stretch {
    pub(super) write: u64,
    /// Which of the object's pieces and runs.
    pub(super) source: u32,
    pub(super) len: u32,
    pub(super) from: u64,
}

impl Stretch {
    /// All of an object in a frame.
    pub(super) fn piece(write: u64, len: u32) -> Self {
        Self { write, source: 0, len, from: 0 }
    }
}

/// A bounded cache of objects' bytes: what is read again stays longer than what was read once, however much of that there is.
/// What is kept, and for how long, follows from the calls alone.
pub(super) struct ReadCache(sync::Cache<Stretch, Bytes, Weigh, BuildHasherDefault<Spread>>);

impl ReadCache {
    /// Keeps at most so many bytes; `None` for 0.
    pub(super) fn new(bytes: u64) -> Option<Self> {
        let options = OptionsBuilder::new()
            .shards((bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX) as usize)
            .estimated_items_capacity((bytes / STRETCH_BYTES) as usize)
            .weight_capacity(bytes)
            .build()
            .ok()?;
        let (hasher, lifecycle) = (BuildHasherDefault::default(), DefaultLifecycle::default());
        (bytes > 0).then(|| Self(sync::Cache::with_options(options, Weigh, hasher, lifecycle)))
    }

    pub(super) fn get(&self, stretch: &Stretch) -> Option<Bytes> {
        self.0.get(stretch)
    }

    /// Keeps bytes that nobody has read yet. Nothing else lies in their memory.
    pub(super) fn insert(&self, stretch: Stretch, bytes: Bytes) {
        self.0.insert(stretch, bytes);
    }

    /// What is kept, or is read now; who wants the same at the same time waits for it. So `read` is to go on whatever
    /// becomes of who asks.
    pub(super) async fn get_or_read(
        &self,
        stretch: &Stretch,
        read: impl Future<Output = Result<Bytes>>,
    ) -> Result<Bytes> {
        self.0.get_or_insert_async(stretch, read).await
    }
}

impl fmt::Debug for ReadCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadCache").field("len_bytes", &self.0.weight()).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
struct Weigh;

impl Weighter<Stretch, Bytes> for Weigh {
    fn weight(&self, _: &Stretch, bytes: &Bytes) -> u64 {
        bytes.len() as u64 + OVERHEAD_BYTES
    }
}
