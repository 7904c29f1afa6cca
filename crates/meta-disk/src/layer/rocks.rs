//! The table layer on RocksDB: a database with one column family.

use crate::engine_dir::EngineDir;
use crate::layer::{self, Layer};
use crate::open_databases::OpenDatabaseGuard;
use crate::row::Changes;
use bytes::Bytes;
use meta::{EngineError, KeyRange};
use rust_rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DB, DBCompressionType, DBRawIterator, DBRecoveryMode,
    DataBlockIndexType, Error, ErrorKind, FlushOptions, IngestExternalFileOptions, LogLevel, LruCacheOptions,
    Options, ReadOptions, SstFileWriter, WriteBatch, WriteBufferManager, WriteOptions,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Free disk space that a flush needs beyond twice the length of its rows, for the manifest record.
const SPARE_BYTES_MIN: u64 = 1 << 20;

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

/// Deletions among consecutive rows of a table file at which the file is compacted without delay. A scan has to step over each deletion
/// until a compaction removes it. A scan steps over fewer deletions in a fraction of a millisecond.
const DELETIONS_MAX: usize = 2048;
const DELETIONS_WINDOW_ROWS: usize = 2 * DELETIONS_MAX;

/// Maximum length of the database's own log file, in bytes.
const INFO_LOG_BYTES_MAX: usize = 1 << 20;

/// An open database.
pub(crate) struct Database {
    db: DB,
    cache: Cache,
    options: Options,
    /// The path of table files that are being built, without number and ending.
    run_path: PathBuf,
    next_run: AtomicU64,
    /// Whether the last call found the disk full.
    was_full: AtomicBool,
    /// The last field: dropped after the database.
    _guard: OpenDatabaseGuard,
}

impl Database {
    /// Opens or creates a database. With a journal only a flush writes table files.
    pub(crate) fn open(
        dir: &EngineDir,
        cache_bytes: usize,
        is_new: bool,
        is_journaled: bool,
    ) -> Result<Self, EngineError> {
        let cache = cache_of(cache_bytes);
        let mut options = database_options(&cache, cache_bytes, is_journaled);
        options.create_if_missing(is_new);
        let guard = OpenDatabaseGuard::new();
        let db = DB::open(&options, dir.rocksdb_path()).map_err(open_error)?;
        let run_path = dir.run_path();
        Ok(Self {
            db,
            cache,
            options,
            run_path,
            next_run: AtomicU64::new(1),
            was_full: AtomicBool::new(false),
            _guard: guard,
        })
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let row = self.db.get_pinned(key).map_err(read_error)?;
        Ok(row.map(|row| Bytes::copy_from_slice(&row)))
    }

    pub(crate) fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>, EngineError> {
        let rows = self.db.batched_multi_get_pinned(keys, false).into_iter();
        rows.map(|row| Ok(row.map_err(read_error)?.map(|row| Bytes::copy_from_slice(&row)))).collect()
    }

    pub(crate) fn cursor(&self, to: Option<Vec<u8>>) -> Cursor<'_> {
        Cursor(self.db.raw_iterator_opt(options_up_to(to)))
    }

    pub(crate) fn last(&self, range: &KeyRange) -> Result<Option<(Bytes, Bytes)>, EngineError> {
        last_row(self.db.raw_iterator_opt(options_between(range)))
    }

    pub(crate) fn write(
        &self,
        changes: &Changes,
        removed_range: Option<&KeyRange>,
        is_logged: bool,
    ) -> Result<(), EngineError> {
        let mut batch = WriteBatch::default();
        for (key, row) in changes {
            match row {
                Some(row) => batch.put(key, row),
                None => batch.delete(key),
            }
        }
        if let Some(range) = removed_range {
            batch.delete_range(&range.from, &range.to);
        }
        let mut options = WriteOptions::default();
        options.disable_wal(!is_logged);
        self.resume_if_full()?;
        self.record_full(self.db.write_opt(&batch, &options).map_err(write_error))
    }

    /// Resumes the database if the disk was full. After that RocksDB refuses all writes until it detects free space or is resumed.
    pub(crate) fn resume_if_full(&self) -> Result<(), EngineError> {
        if !self.was_full.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        self.record_full(self.db.resume().map_err(resume_error))
    }

    pub(crate) fn flush(&self, unflushed_bytes: u64) -> Result<(), EngineError> {
        self.require_free_space(unflushed_bytes)?;
        self.resume_if_full()?;
        self.record_full(self.db.flush_opt(&FlushOptions::default()).map_err(write_error))
    }

    /// Begins a table file outside of the database.
    pub(crate) fn begin_table(&self) -> Result<NewTable<'_>, EngineError> {
        let number = self.next_run.fetch_add(1, Ordering::Relaxed);
        let path = self.run_path.with_extension(format!("{number}.sst"));
        let mut writer = SstFileWriter::create(&self.options);
        let file = FinishedTable(path);
        writer.open(&file.0).map_err(build_error)?;
        Ok(NewTable { writer, file })
    }

    /// Publishes table files, oldest first, and newer changes, with one record of RocksDB's manifest.
    pub(crate) fn ingest(
        &self,
        tables: &[layer::FinishedTable],
        changes: &Changes,
    ) -> Result<(), EngineError> {
        let mut newest = self.begin_table()?;
        changes.iter().try_for_each(|(key, row)| newest.add(key, row.as_deref()))?;
        let newest = newest.finish()?;
        let path = |table| match table {
            &layer::FinishedTable::Rocks(FinishedTable(ref path)) => path,
            layer::FinishedTable::Lsm(_) => unreachable!("the table is of another layer"),
        };
        let paths: Vec<&PathBuf> = tables.iter().map(path).chain([&newest.0]).collect();
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        self.db.ingest_external_file_opts(&options, paths).map_err(write_error)
    }

    pub(crate) fn sync(&self) -> Result<(), EngineError> {
        self.db.flush_wal(true).map_err(write_error)
    }

    /// Returns the memory in use by the cache, in bytes. Without a journal this includes the write buffers.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.cache.get_usage() as u64
    }

    /// Fails unless there is enough free space for a table file with `bytes` of rows. If RocksDB runs out of space while it writes a
    /// table file, it stops until half a GiB is free.
    fn require_free_space(&self, bytes: u64) -> Result<(), EngineError> {
        let disk = rustix::fs::statvfs(self.db.path());
        let disk = disk.map_err(|error| EngineError::Unavailable(error.to_string()))?;
        let free = disk.f_bavail * disk.f_frsize;
        if free >= 2 * bytes + SPARE_BYTES_MIN {
            return Ok(());
        }
        Err(EngineError::Full(format!("only {free} bytes are free on the disk of the metadata tables")))
    }

    /// Remembers whether a call failed because the disk was full.
    fn record_full<T>(&self, outcome: Result<T, EngineError>) -> Result<T, EngineError> {
        if matches!(outcome, Err(EngineError::Full(_))) {
            self.was_full.store(true, Ordering::Release);
        }
        outcome
    }
}

/// A table file that is being written.
pub(crate) struct NewTable<'a> {
    writer: SstFileWriter<'a>,
    file: FinishedTable,
}

impl NewTable<'_> {
    pub(crate) fn add(&mut self, key: &[u8], row: Option<&[u8]>) -> Result<(), EngineError> {
        let added = match row {
            Some(row) => self.writer.put(key, row),
            None => self.writer.delete(key),
        };
        added.map_err(build_error)
    }

    pub(crate) fn finish(mut self) -> Result<FinishedTable, EngineError> {
        self.writer.finish().map_err(build_error)?;
        Ok(self.file)
    }
}

/// The path of a table file. The file is deleted when this is dropped; an ingestion has moved it before.
pub(crate) struct FinishedTable(PathBuf);

impl Drop for FinishedTable {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A cursor over a database or a snapshot.
pub(crate) struct Cursor<'a>(DBRawIterator<'a>);

impl Cursor<'_> {
    pub(crate) fn seek(&mut self, key: &[u8]) {
        self.0.seek(key);
    }

    pub(crate) fn next(&mut self) {
        self.0.next();
    }

    pub(crate) fn item(&self) -> Option<(&[u8], &[u8])> {
        self.0.item()
    }

    pub(crate) fn finish(self) -> Result<(), EngineError> {
        self.0.status().map_err(read_error)
    }
}

/// A view of a database that no later write changes.
pub(crate) struct Snapshot {
    /// Borrows the database of `_layer`. The first field, so it is dropped first.
    snapshot: rust_rocksdb::Snapshot<'static>,
    _layer: Arc<Layer>,
}

impl Snapshot {
    /// Returns a snapshot of a layer, which is a RocksDB database.
    pub(crate) fn new(layer: Arc<Layer>) -> Self {
        let Layer::Rocks(database) = &*layer else { unreachable!("the layer is a RocksDB database") };
        let snapshot = database.db.snapshot();
        // SAFETY: the snapshot borrows the database. The database does not move, since it is inside the `Arc`. It is not dropped before
        // the snapshot, since this struct holds the `Arc` and fields are dropped in order of declaration. No copy of the snapshot
        // leaves this type.
        let snapshot = unsafe {
            std::mem::transmute::<rust_rocksdb::Snapshot<'_>, rust_rocksdb::Snapshot<'static>>(snapshot)
        };
        Self { snapshot, _layer: layer }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        let row = self.snapshot.get_pinned(key).map_err(read_error)?;
        Ok(row.map(|row| Bytes::copy_from_slice(&row)))
    }

    pub(crate) fn cursor(&self, to: Option<Vec<u8>>) -> Cursor<'_> {
        Cursor(self.snapshot.raw_iterator_opt(options_up_to(to)))
    }

    pub(crate) fn last(&self, range: &KeyRange) -> Result<Option<(Bytes, Bytes)>, EngineError> {
        last_row(self.snapshot.raw_iterator_opt(options_between(range)))
    }
}

/// Returns the last row of an iterator's range; `None` if it has no row.
fn last_row(mut iterator: DBRawIterator<'_>) -> Result<Option<(Bytes, Bytes)>, EngineError> {
    iterator.seek_to_last();
    let found = iterator.item().map(|(key, row)| (Bytes::copy_from_slice(key), Bytes::copy_from_slice(row)));
    iterator.status().map_err(read_error)?;
    Ok(found)
}

/// Returns options for reads of keys below `to`.
fn options_up_to(to: Option<Vec<u8>>) -> ReadOptions {
    let mut options = ReadOptions::default();
    if let Some(to) = to {
        options.set_iterate_upper_bound(to);
    }
    options
}

/// Returns options for reads of a range.
fn options_between(range: &KeyRange) -> ReadOptions {
    let mut options = options_up_to(Some(range.to.clone()));
    options.set_iterate_lower_bound(range.from.clone());
    options
}

/// Creates the block cache. Without a journal it also accounts for the write buffers.
fn cache_of(bytes: usize) -> Cache {
    let shards = (bytes / CACHE_SHARD_BYTES_MIN).clamp(1, CACHE_SHARDS_MAX);
    let mut options = LruCacheOptions::default();
    options.set_capacity(bytes);
    options.set_num_shard_bits(shards.ilog2().cast_signed());
    Cache::new_lru_cache_opts(&options)
}

/// Reads a row of a database that may be in use, without taking its lock and without writing.
pub(super) fn read_row(dir: &Path, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
    let mut options = Options::default();
    // The database's own log file is not written to.
    options.set_log_level(LogLevel::Fatal);
    let _guard = OpenDatabaseGuard::new();
    let db = DB::open_for_read_only(&options, dir, false).map_err(open_error)?;
    db.get(key).map_err(read_error)
}

fn database_options(cache: &Cache, cache_bytes: usize, is_journaled: bool) -> Options {
    let mut options = Options::default();
    if is_journaled {
        // Only a checkpoint writes table files.
        options.set_write_buffer_size(JOURNALED_BUFFER_BYTES);
        options.set_avoid_flush_during_shutdown(true);
    } else {
        options.set_write_buffer_size((cache_bytes / 4).min(WRITE_BUFFER_BYTES_MAX));
        options.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager_with_cache(
            cache_bytes / 2,
            false,
            cache.clone(),
        ));
        // Deletions in the write buffer slow down scans as well. After such a scan, the
        // second write begins a flush.
        options.set_memtable_op_scan_flush_trigger(DELETIONS_MAX as u32);
    }
    options.add_compact_on_deletion_collector_factory_count_only(DELETIONS_WINDOW_ROWS, DELETIONS_MAX);
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

/// Converts an error of opening the database. A missing database is `Corrupt`.
fn open_error(error: Error) -> EngineError {
    match error.kind() {
        ErrorKind::InvalidArgument => EngineError::Corrupt(one_line(&error)),
        _ => read_error(error),
    }
}

/// Converts an error of a call that changes nothing.
fn read_error(error: Error) -> EngineError {
    let text = one_line(&error);
    if error.kind() == ErrorKind::Corruption || text.contains("No such file or directory") {
        EngineError::Corrupt(text)
    } else {
        EngineError::Unavailable(text)
    }
}

/// Converts an error of a call that may have changed something. A write for which RocksDB's write-ahead log has no space is not
/// applied.
fn write_error(error: Error) -> EngineError {
    let text = one_line(&error);
    if text.contains("No space left on device") {
        EngineError::Full(text)
    } else {
        EngineError::Uncertain(text)
    }
}

/// Converts an error of writing a table file outside of the database.
fn build_error(error: Error) -> EngineError {
    let text = one_line(&error);
    if text.contains("No space left on device") {
        EngineError::Full(text)
    } else {
        EngineError::Unavailable(text)
    }
}

/// Converts an error of resuming after the disk was full. The database still finds the disk full.
fn resume_error(error: Error) -> EngineError {
    EngineError::Full(one_line(&error))
}

/// Returns the text of an error without line breaks.
fn one_line(error: &Error) -> String {
    error.as_ref().replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rust_rocksdb::WaitForCompactOptions;
    use rust_rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats};

    const ROWS: u32 = 200_000;

    fn key(number: u32) -> Vec<u8> {
        format!("row-{number:08}").into_bytes()
    }

    fn write_all(database: &Database, row: Option<&[u8]>, is_logged: bool) {
        for first in (0..ROWS).step_by(1000) {
            let rows = (first..first + 1000).map(|number| (key(number), row.map(Into::into)));
            database.write(&rows.collect(), None, is_logged).unwrap();
        }
    }

    /// Scans the whole database, and returns the number of deletions that the scan stepped over.
    fn deletions_scanned(database: &Database) -> u64 {
        set_perf_stats(PerfStatsLevel::EnableCount);
        let mut counts = PerfContext::default();
        counts.reset();
        let mut cursor = database.cursor(None);
        cursor.seek(b"");
        while cursor.item().is_some() {
            cursor.next();
        }
        cursor.finish().unwrap();
        counts.metric(PerfMetric::InternalDeleteSkippedCount)
    }

    /// Regression: deletions of many rows stayed in the tables until other writes caused a compaction, and each scan read all of them.
    #[test]
    fn scans_after_many_deletions_step_over_few_of_them() {
        for is_journaled in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let dir = EngineDir::lock(folder.path()).unwrap();
            let database = Database::open(&dir, 64 << 20, true, is_journaled).unwrap();
            write_all(&database, Some(&[7; 100]), !is_journaled);
            database.flush(0).unwrap();
            write_all(&database, None, !is_journaled);
            if is_journaled {
                // Only a checkpoint writes table files.
                database.flush(0).unwrap();
            } else {
                deletions_scanned(&database);
                for number in 0..2 {
                    database.write(&[(key(number), Some(Vec::new()))].into(), None, true).unwrap();
                }
            }
            database.db.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
            let scanned = deletions_scanned(&database);
            assert!(scanned <= DELETIONS_MAX as u64, "{scanned} deletions, journal: {is_journaled}");
        }
    }
}
