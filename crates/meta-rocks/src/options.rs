//! What can be chosen when an engine is opened, and what is fixed for RocksDB.

use meta::LogCap;
use rust_rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, DataBlockIndexType,
    LogLevel, LruCacheOptions, Options, WriteBufferManager,
};
use std::time::Duration;

/// Settings of an engine; none of them is part of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RocksOptions {
    /// Memory for cached blocks and for records not yet in a table file, together. At least 8 MiB are used.
    pub cache_bytes: usize,
    /// How much log is kept.
    pub log_cap: LogCap,
    /// How long a commit waits at most until the engine syncs it by itself.
    pub sync_interval: Duration,
    /// Where a record of the journal is missing: go on with the state before it, and drop all records after it. Otherwise
    /// opening is refused.
    pub ends_at_gap: bool,
}

impl Default for RocksOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            log_cap: LogCap::default(),
            sync_interval: Duration::from_millis(5),
            ends_at_gap: false,
        }
    }
}

const CACHE_BYTES_MIN: usize = 8 << 20;

/// A shard of the cache holds whole filters of large tables: what is longer than its shard is read anew for each key.
const CACHE_SHARD_BYTES_MIN: usize = 8 << 20;
const CACHE_SHARDS_MAX: usize = 64;

/// Records in memory become a file at this size; a quarter of a small cache is enough.
const WRITE_BUFFER_BYTES_MAX: usize = 16 << 20;

/// More than records of one checkpoint can take.
const JOURNALED_BUFFER_BYTES: usize = 512 << 20;

/// RocksDB's own log is kept this small, so that opening after a crash is quick.
const WAL_BYTES_MAX: u64 = 64 << 20;

/// Descriptors of table files.
const OPEN_FILES_MAX: i32 = 256;

/// One bit in a hundred keys that are not there is looked for in vain.
const BLOOM_BITS_PER_KEY: f64 = 10.0;

/// Most keys that a commit asks for are not there; this part of the write buffer says so without a search.
const WRITE_BUFFER_BLOOM_RATIO: f64 = 0.05;

const INFO_LOG_BYTES_MAX: usize = 1 << 20;

impl RocksOptions {
    /// The cache, which also counts the write buffers.
    pub(crate) fn cache(&self) -> Cache {
        let bytes = self.cache_bytes.max(CACHE_BYTES_MIN);
        let shards = (bytes / CACHE_SHARD_BYTES_MIN).clamp(1, CACHE_SHARDS_MAX);
        let mut options = LruCacheOptions::default();
        options.set_capacity(bytes);
        options.set_num_shard_bits(shards.ilog2().cast_signed());
        Cache::new_lru_cache_opts(&options)
    }

    /// RocksDB's options with that cache.
    pub(crate) fn rocks(&self, cache: &Cache, is_journaled: bool) -> Options {
        let mut options = Options::default();
        let bytes = cache.get_capacity();
        if is_journaled {
            // Only a checkpoint flushes.
            options.set_write_buffer_size(JOURNALED_BUFFER_BYTES);
            options.set_avoid_flush_during_shutdown(true);
        } else {
            options.set_write_buffer_size((bytes / 4).min(WRITE_BUFFER_BYTES_MAX));
            options.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager_with_cache(
                bytes / 2,
                false,
                cache.clone(),
            ));
        }
        options.set_memtable_whole_key_filtering(true);
        options.set_memtable_prefix_bloom_ratio(WRITE_BUFFER_BLOOM_RATIO);
        options.set_block_based_table_factory(&blocks(cache));
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_max_open_files(OPEN_FILES_MAX);
        options.set_max_background_jobs(2);
        // One thread at a time writes: nothing to coordinate.
        options.set_allow_concurrent_memtable_write(false);
        options.set_enable_write_thread_adaptive_yield(false);
        // What is torn at the end was not synced; whether what was synced is there, `files` knows.
        options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
        options.set_track_and_verify_wals_in_manifest(true);
        options.set_max_total_wal_size(WAL_BYTES_MAX);
        options.set_log_level(LogLevel::Warn);
        options.set_max_log_file_size(INFO_LOG_BYTES_MAX);
        options.set_keep_log_file_num(2);
        options.set_stats_dump_period_sec(0);
        options.set_stats_persist_period_sec(0);
        options
    }
}

fn blocks(cache: &Cache) -> BlockBasedOptions {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(cache);
    blocks.set_bloom_filter(BLOOM_BITS_PER_KEY, false);
    // Parts of filters and indexes are read, and kept in the cache, as they are needed.
    blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    blocks.set_partition_filters(true);
    blocks.set_pin_top_level_index_and_filter(true);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_cache_index_and_filter_blocks_with_high_priority(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    blocks.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    blocks
}
