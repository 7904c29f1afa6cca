//! The settings of an engine, and the fixed options of RocksDB.

use meta::LogCap;
use rust_rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, DataBlockIndexType,
    LogLevel, LruCacheOptions, Options, WriteBufferManager,
};
use std::time::Duration;

/// Settings of an engine. They are not part of the format and may differ at each opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RocksOptions {
    /// Memory for cached blocks and write buffers together, in bytes. At least 8 MiB are used. With a journal it does not include write
    /// buffers.
    pub cache_bytes: usize,
    /// Limits of the op log.
    pub log_cap: LogCap,
    /// Maximum time from a commit until the engine starts to sync it by itself.
    pub sync_interval: Duration,
    /// Whether to open an engine if a record of the journal is missing. The engine then has the state before the missing record, and
    /// all later records are dropped. Otherwise opening fails.
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

/// Minimum size of a cache shard. A block larger than its shard, such as the filter of a large table, is not cached and is read again
/// for each key.
const CACHE_SHARD_BYTES_MIN: usize = 8 << 20;
const CACHE_SHARDS_MAX: usize = 64;

/// Maximum size of a write buffer, at which it is written to a table file. With a small cache the limit is a quarter of the cache.
const WRITE_BUFFER_BYTES_MAX: usize = 16 << 20;

/// Write buffer size with a journal: more than the records between two checkpoints can take.
const JOURNALED_BUFFER_BYTES: usize = 512 << 20;

/// Maximum size of RocksDB's write-ahead log, which bounds the time to open after a crash.
const WAL_BYTES_MAX: u64 = 64 << 20;

/// Maximum number of open table files.
const OPEN_FILES_MAX: i32 = 256;

/// With 10 bits per key the filter has about 1 % false positives.
const BLOOM_BITS_PER_KEY: f64 = 10.0;

/// Share of the write buffer used for a Bloom filter. Most keys that a commit reads do not exist, and the filter avoids their search.
const WRITE_BUFFER_BLOOM_RATIO: f64 = 0.05;

const INFO_LOG_BYTES_MAX: usize = 1 << 20;

impl RocksOptions {
    /// Creates the block cache. Without a journal it also accounts for the write buffers.
    pub(crate) fn cache(&self) -> Cache {
        let bytes = self.cache_bytes.max(CACHE_BYTES_MIN);
        let shards = (bytes / CACHE_SHARD_BYTES_MIN).clamp(1, CACHE_SHARDS_MAX);
        let mut options = LruCacheOptions::default();
        options.set_capacity(bytes);
        options.set_num_shard_bits(shards.ilog2().cast_signed());
        Cache::new_lru_cache_opts(&options)
    }

    /// Creates RocksDB's options with the given cache.
    pub(crate) fn rocks(&self, cache: &Cache, is_journaled: bool) -> Options {
        let mut options = Options::default();
        let bytes = cache.get_capacity();
        if is_journaled {
            // Only a checkpoint writes table files.
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
        options.set_block_based_table_factory(&block_options(cache));
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_max_open_files(OPEN_FILES_MAX);
        options.set_max_background_jobs(2);
        // Only one thread writes at a time, so writes need no coordination.
        options.set_allow_concurrent_memtable_write(false);
        options.set_enable_write_thread_adaptive_yield(false);
        // A torn end of the log was not synced. `SyncedMark` detects the loss of synced commits.
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

fn block_options(cache: &Cache) -> BlockBasedOptions {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(cache);
    blocks.set_bloom_filter(BLOOM_BITS_PER_KEY, false);
    // Filters and indexes are partitioned, so that only the needed parts are read and cached.
    blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    blocks.set_partition_filters(true);
    blocks.set_pin_top_level_index_and_filter(true);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_cache_index_and_filter_blocks_with_high_priority(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    blocks.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    blocks
}
