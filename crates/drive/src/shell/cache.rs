//! What was read or stored of objects lately, in memory: below is no page cache.
//!
//! Invariants: what is kept was compared with its checksums, or came from who stored it, and is no longer than
//! [`KEPT_BYTES_MAX`]; the number of a write says which bytes they are, whatever becomes of the blocks that they lie in, so
//! that nothing here is ever out of date. What is being stored has a number before it is a write, and another one then.

use crate::error::Result;
use crate::format::{Body, Extent};
use crate::machine::Named;
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

    /// What is read at once of one of an object's runs, if it is read from the beginning on.
    fn of_run(write: u64, source: u32, extent: &Extent) -> impl Iterator<Item = Self> {
        let len_bytes = extent.data_bytes;
        (0..len_bytes).step_by(KEPT_BYTES_MAX as usize).map(move |from| {
            let len = KEPT_BYTES_MAX.min(len_bytes - from) as u32;
            Self { write, source, len, from }
        })
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

    /// Keeps what goes into a run, if it is all of what is read there at once.
    pub(super) fn insert_data(&self, stretch: Stretch, bytes: Bytes) {
        let is_read_at_once = stretch.from.is_multiple_of(KEPT_BYTES_MAX) && stretch.len > 0;
        if is_read_at_once && u64::from(stretch.len) <= KEPT_BYTES_MAX {
            self.insert(stretch, alone(bytes));
        }
    }

    /// Bytes in runs are a write's from now on.
    pub(super) fn rename(&self, named: &Named) {
        let numbers = named
            .before
            .iter()
            .flat_map(|&(number, runs)| (0_u32..).take(runs).map(move |run| (number, run)));
        for ((number, run), (source, extent)) in numbers.zip((0..).zip(&named.extents)) {
            let after = Stretch::of_run(named.write, source, extent);
            for (before, after) in Stretch::of_run(number, run, extent).zip(after) {
                if let Some((_, bytes)) = self.0.remove(&before) {
                    self.insert(after, bytes);
                }
            }
        }
    }

    /// Nobody will ask for what a write stored.
    pub(super) fn forget(&self, write: u64, body: &Body) {
        match body {
            Body::Piece(piece) => drop(self.0.remove(&Stretch::piece(write, piece.len))),
            Body::Extents(extents) => {
                for (source, extent) in (0..).zip(extents) {
                    Stretch::of_run(write, source, extent).for_each(|stretch| drop(self.0.remove(&stretch)));
                }
            }
            Body::Mark => {}
        }
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

/// In memory where next to nothing else lies: a buffer has more than what is short takes.
pub(super) fn alone(bytes: Bytes) -> Bytes {
    if (bytes.len() as u64) < KEPT_BYTES_MAX { Bytes::copy_from_slice(&bytes) } else { bytes }
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
