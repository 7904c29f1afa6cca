//! A cache of blocks and filters that several tables share.

use crate::Result;
use crate::block::Block;
use crate::filter::Filter;
use quick_cache::sync::DefaultLifecycle;
use quick_cache::{Weighter, sync};
use std::hash::{BuildHasherDefault, Hasher};

/// Parts of tables in memory, with a limit in bytes. Parts that were used again are kept longer than those used once.
///
/// The table's id distinguishes parts of different tables. Concurrent readers of a missing part wait for one of them to read it
/// (single flight). What the cache keeps depends on the calls alone, not on the process or the machine.
pub struct Cache(sync::Cache<PartKey, CachedPart, PartWeighter, BuildHasherDefault<Spread>>);

/// The key of a part: the id of its table and its offset in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct PartKey {
    table: u64,
    at: u64,
}

/// A cached part of a table.
#[derive(Debug, Clone)]
pub(crate) enum CachedPart {
    Block(Block),
    Filter(Filter),
}

/// The memory that a part costs besides its bytes: the cache's entry and the allocations.
const OVERHEAD_BYTES: usize = 128;

/// A part is kept only if it is smaller than a shard, so shards must be large. More shards are no faster for a handful of threads.
const SHARDS_MAX: u64 = 16;
const SHARD_LEN_MIN: u64 = 4 << 20;

/// The average length of a part, for tables with the default options.
const AVERAGE_PART_BYTES: u64 = 16 << 10;

impl Cache {
    /// Returns a cache of at most `bytes` bytes; 0 keeps nothing.
    pub fn new(bytes: u64) -> Self {
        let shards = (bytes / SHARD_LEN_MIN).clamp(1, SHARDS_MAX);
        let options = quick_cache::OptionsBuilder::new()
            .shards(shards as usize)
            .estimated_items_capacity((bytes / AVERAGE_PART_BYTES) as usize)
            .weight_capacity(bytes)
            .build();
        let options = options.unwrap_or_else(|_| unreachable!("all capacities are set"));
        Self(sync::Cache::with_options(
            options,
            PartWeighter,
            BuildHasherDefault::default(),
            DefaultLifecycle::default(),
        ))
    }

    /// Returns the memory that the cached parts occupy, in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.0.weight()
    }

    /// Drops all parts of a table.
    pub(crate) fn forget(&self, table: u64) {
        self.0.retain(|part, _| part.table != table);
    }

    /// Returns a part from the cache, or reads and caches it.
    pub(crate) fn get_or_read(
        &self,
        table: u64,
        at: u64,
        read: impl FnOnce() -> Result<CachedPart>,
    ) -> Result<CachedPart> {
        self.0.get_or_insert_with(&PartKey { table, at }, read)
    }

    /// Puts a part into the cache.
    pub(crate) fn insert(&self, table: u64, at: u64, part: CachedPart) {
        self.0.insert(PartKey { table, at }, part);
    }

    /// Returns a part if it is cached.
    pub(crate) fn get(&self, table: u64, at: u64) -> Option<CachedPart> {
        self.0.get(&PartKey { table, at })
    }

    /// Like [`Cache::get`], but does not count as a use, so the part is not kept longer.
    pub(crate) fn peek(&self, table: u64, at: u64) -> Option<CachedPart> {
        self.0.peek(&PartKey { table, at })
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("len_bytes", &self.len_bytes()).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
struct PartWeighter;

impl Weighter<PartKey, CachedPart> for PartWeighter {
    fn weight(&self, _: &PartKey, part: &CachedPart) -> u64 {
        let len = match part {
            CachedPart::Block(block) => block.len(),
            CachedPart::Filter(filter) => filter.len(),
        };
        (len + OVERHEAD_BYTES) as u64
    }
}

/// A hasher for a few numbers whose result is the same in every process, so that simulated runs are reproducible.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}
