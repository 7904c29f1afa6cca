//! Blocks and filters in memory, of all tables that share it.

use crate::Result;
use crate::block::Block;
use crate::filter::Filter;
use quick_cache::sync::DefaultLifecycle;
use quick_cache::{Weighter, sync};
use std::hash::{BuildHasherDefault, Hasher};

/// Parts of tables in memory, bounded in bytes: what was read lately, and rather what was read again.
///
/// Parts of one table are told from others' by the table's id. Readers that want the same part at the same time wait for
/// one of them to read it. What is kept, and for how long, follows from the calls alone, not from the process or the machine.
pub struct Cache(sync::Cache<Part, Kept, Weigh, BuildHasherDefault<Spread>>);

/// A table's id and where in it the part begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Part {
    table: u64,
    at: u64,
}

/// What is kept of a table.
#[derive(Debug, Clone)]
pub(crate) enum Kept {
    Block(Block),
    Filter(Filter),
}

/// What a part costs besides its bytes: its entry in the cache, its allocations.
const OVERHEAD_LEN: usize = 128;

/// A part is kept only if it is smaller than a shard, so there are few; more are no faster for a handful of threads.
const SHARDS_MAX: u64 = 16;
const SHARD_LEN_MIN: u64 = 4 << 20;

/// What a part takes on average: of tables with the default options.
const PART_LEN: u64 = 16 << 10;

impl Cache {
    /// A cache of at most so many bytes; none are kept if there are 0.
    pub fn new(bytes: u64) -> Self {
        let shards = (bytes / SHARD_LEN_MIN).clamp(1, SHARDS_MAX);
        let options = quick_cache::OptionsBuilder::new()
            .shards(shards as usize)
            .estimated_items_capacity((bytes / PART_LEN) as usize)
            .weight_capacity(bytes)
            .build();
        let options = options.unwrap_or_else(|_| unreachable!("capacities are given"));
        Self(sync::Cache::with_options(
            options,
            Weigh,
            BuildHasherDefault::default(),
            DefaultLifecycle::default(),
        ))
    }

    /// How much it keeps now, in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.0.weight()
    }

    /// Drops what it keeps of a table, which is read no more.
    pub fn forget(&self, table: u64) {
        self.0.retain(|part, _| part.table != table);
    }

    /// A part of a table: kept, or read and kept.
    pub(crate) fn get_or_read(
        &self,
        table: u64,
        at: u64,
        read: impl FnOnce() -> Result<Kept>,
    ) -> Result<Kept> {
        self.0.get_or_insert_with(&Part { table, at }, read)
    }

    /// Keeps a part of a table that was read.
    pub(crate) fn insert(&self, table: u64, at: u64, kept: Kept) {
        self.0.insert(Part { table, at }, kept);
    }

    /// A part of a table, if it is kept.
    pub(crate) fn get(&self, table: u64, at: u64) -> Option<Kept> {
        self.0.get(&Part { table, at })
    }

    /// As [`Cache::get`], but a part is not kept for longer for it.
    pub(crate) fn peek(&self, table: u64, at: u64) -> Option<Kept> {
        self.0.peek(&Part { table, at })
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("len_bytes", &self.len_bytes()).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
struct Weigh;

impl Weighter<Part, Kept> for Weigh {
    fn weight(&self, _: &Part, kept: &Kept) -> u64 {
        let len = match kept {
            Kept::Block(block) => block.len(),
            Kept::Filter(filter) => filter.len(),
        };
        (len + OVERHEAD_LEN) as u64
    }
}

/// A hash of two numbers that is the same in every process, for the sake of simulated worlds.
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
