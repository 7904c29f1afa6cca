//! The table layer in pure Rust: an LSM tree of sorted tables (crate `sst`) in files.
//!
//! A publication goes to the write-ahead log, if it is in no other journal, and then to the memtable. A full memtable is frozen and written as
//! a table file in the background. Table files of similar size are merged in the background.
//!
//! Invariants:
//! - The newest value of a key is in the first of memtable, frozen memtable and tables (newest first) that has the key. An empty value is a
//!   tombstone.
//! - The manifest names only durable table files, and the log files from `first_log` on hold every logged publication that is in no table.
//! - The caller excludes concurrent writes, flushes and ingestions; reads run at any time.

mod cursor;
mod manifest;
mod memtable;
mod merge;
mod readers;
mod snapshot;
mod table_file;
mod worker;
mod write_ahead_log;

pub(crate) use cursor::Cursor;
pub(crate) use manifest::FORMAT_VERSION;
pub(crate) use snapshot::Snapshot;

use crate::error::{self, table_error};
use crate::journal;
use crate::layer;
use crate::row::Changes;
use bytes::Bytes;
use manifest::Manifest;
use memtable::{Memtable, Version};
use meta::{EngineError, KeyRange};
use readers::Readers;
use sst::FileTable;
use std::fs::{self, File};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use table_file::{NewTable, Unsynced};
use worker::Worker;
use write_ahead_log::{BadEnd, WriteAheadLog};

/// Maximum memory of a memtable that is not frozen yet, in bytes. With a small cache the limit is a quarter of the cache.
const MEMTABLE_BYTES_MAX: usize = 32 << 20;

/// An open LSM tree.
pub(crate) struct Lsm {
    // The workers are dropped, and their threads end, before the rest.
    flusher: Worker,
    merger: Worker,
    state: Arc<State>,
}

/// A table file of a run that is being written. It is deleted unless it is finished.
pub(crate) struct NewRunTable<'a> {
    table: NewTable,
    state: &'a State,
}

impl NewRunTable<'_> {
    /// Adds a row, or a tombstone without one. The key must be greater than the last one.
    pub(crate) fn add(&mut self, key: &[u8], row: Option<&[u8]>) -> Result<(), EngineError> {
        assert!(row.is_none_or(|row| !row.is_empty()), "an empty row would be a tombstone");
        self.table.add(key, row.unwrap_or_default()).map_err(table_error)
    }

    pub(crate) fn finish(self) -> Result<FinishedTable, EngineError> {
        let table = self.table.finish(&self.state.dir, &self.state.cache).map_err(table_error)?;
        let table = table.unwrap_or_else(|| unreachable!("a table of a run has rows"));
        Ok(FinishedTable { table, is_named: AtomicBool::new(false) })
    }
}

/// A table file of a run. It is deleted when this is dropped, unless the manifest may name it.
pub(crate) struct FinishedTable {
    table: Arc<FileTable>,
    /// Whether the manifest may name the table.
    is_named: AtomicBool,
}

impl FinishedTable {
    /// Returns the table of a run for the manifest to name. Dropping the run does not delete its file from then on.
    fn to_be_named(table: &layer::FinishedTable) -> Arc<FileTable> {
        match table {
            layer::FinishedTable::Lsm(finished) => {
                finished.is_named.store(true, Ordering::Release);
                finished.table.clone()
            }
            #[cfg(feature = "rocksdb")]
            layer::FinishedTable::Rocks(_) => unreachable!("the table is of another layer"),
        }
    }
}

impl Drop for FinishedTable {
    fn drop(&mut self) {
        if !self.is_named.load(Ordering::Acquire) {
            self.table.mark_obsolete();
        }
    }
}

/// The state that the threads have in common.
struct State {
    dir: PathBuf,
    cache: Arc<sst::Cache>,
    view: RwLock<Arc<View>>,
    readers: Arc<Readers>,
    /// The write-ahead log, once its earlier records have been applied.
    log: OnceLock<WriteAheadLog>,
    /// The place where the replay of the log ended, if it is not the log's end.
    bad_end: OnceLock<BadEnd>,
    memtable_bytes_max: usize,
    next_table: AtomicU64,
    /// Also serializes changes of the list of tables.
    manifest: Mutex<Manifest>,
    flush: Mutex<Flush>,
    flush_ended: Condvar,
    is_closing: AtomicBool,
}

/// The state of the flush of the frozen memtable.
#[derive(Default)]
struct Flush {
    is_running: bool,
    /// The first log file without records of the frozen memtable.
    first_log: u64,
    /// The error of the last flush, which is then tried again before the next one.
    error: Option<EngineError>,
}

/// The memtables and tables that a reader looks into. The memtable grows, and everything else stays as it is.
#[derive(Clone, Default)]
struct View {
    memtable: Arc<Memtable>,
    /// The memtable that a flush is writing.
    frozen: Option<Arc<Memtable>>,
    /// The tables in files, newest first.
    tables: Vec<Arc<FileTable>>,
}

/// Returns the version of a tree's files, also of one that this build cannot read; `None` if the directory has no tree. The tree may be in use.
pub(crate) fn stored_version(dir: &Path) -> Result<Option<u32>, EngineError> {
    Manifest::stored_version(dir)
}

impl Lsm {
    /// Opens the tree in a directory and applies its log; creates a tree if `is_new`. The applied records become durable only with the next
    /// [`flush`](Self::flush).
    pub(crate) fn open(dir: &Path, cache_bytes: usize, is_new: bool) -> Result<Self, EngineError> {
        if is_new {
            fs::create_dir_all(dir).map_err(unavailable)?;
        }
        let manifest = match Manifest::load(dir)? {
            Some(manifest) => manifest,
            None if is_new => create(dir).map_err(unavailable)?,
            None => {
                return Err(EngineError::Corrupt("the manifest of the metadata tables is missing".into()));
            }
        };
        let state = Arc::new(State::open(dir, cache_bytes, manifest)?);
        state.replay_log()?;
        let (flushed, merged) = (state.clone(), state.clone());
        let merger = Worker::start("meta-merge", move || merged.merge_due()).map_err(unavailable)?;
        let flusher = Worker::start("meta-flush", move || flushed.flush_frozen()).map_err(unavailable)?;
        merger.wake();
        Ok(Self { flusher, merger, state })
    }

    /// Cuts the log where a loss of power tore it. Fails if it is damaged. `is_synced` says whether a sync covered that
    /// place, if it is known.
    pub(crate) fn settle_log_end(&self, is_synced: Option<bool>) -> Result<(), EngineError> {
        match self.state.bad_end.get() {
            Some(end) => end.settle(&self.state.dir, is_synced),
            None => Ok(()),
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.state.view().get(key, Version::MAX)
    }

    /// Returns the values of keys in one state of the tree.
    pub(crate) fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Bytes>>, EngineError> {
        let view = self.state.view();
        let guard = self.state.readers.begin();
        keys.iter().map(|key| view.get(key, guard.version)).collect()
    }

    /// Returns a cursor over the present state, up to a key.
    pub(crate) fn cursor(&self, to: Option<Vec<u8>>) -> Cursor<'_> {
        self.state.cursor(to)
    }

    /// Returns the last row of a range; `None` if it has no row.
    pub(crate) fn last(&self, range: &KeyRange) -> Result<Option<(Bytes, Bytes)>, EngineError> {
        let view = self.state.view();
        let guard = self.state.readers.begin();
        view.last(range, guard.version)
    }

    /// Returns a view that no later write changes.
    pub(crate) fn snapshot(&self) -> Snapshot {
        // The view comes first: a later view could contain tables with rows that are newer than the guard's version.
        let view = self.state.view();
        Snapshot::new(view, self.state.readers.begin())
    }

    /// Publishes changes and removes a range, both at once. After an error nothing has changed.
    pub(crate) fn write(
        &self,
        changes: Changes,
        removed_range: Option<&KeyRange>,
        is_logged: bool,
    ) -> Result<(), EngineError> {
        let state = &self.state;
        let removed = state.keys_in(removed_range)?;
        if is_logged {
            self.make_room()?;
            let log =
                state.log.get().unwrap_or_else(|| unreachable!("the log begins when the tree is opened"));
            log.append(&journal::encode(&changes, removed_range)).map_err(error::io_error)?;
        }
        state.insert(changes, removed);
        Ok(())
    }

    /// Makes all logged publications durable.
    pub(crate) fn sync(&self) -> Result<(), EngineError> {
        self.state.log.get().map_or(Ok(()), WriteAheadLog::sync).map_err(unavailable)
    }

    /// Returns whether the memtable has reached its limit.
    pub(crate) fn is_memtable_full(&self) -> bool {
        self.state.is_memtable_full()
    }

    /// Writes all rows to table files, which are durable when this returns.
    pub(crate) fn flush(&self) -> Result<(), EngineError> {
        self.finish_flush()?;
        if !self.state.view().memtable.is_empty() {
            self.begin_flush()?;
            self.state.wait_for_flush()?;
            self.merger.wake();
        }
        Ok(())
    }

    /// Begins a table file of a run.
    pub(crate) fn begin_table(&self) -> Result<NewRunTable<'_>, EngineError> {
        Ok(NewRunTable { table: self.state.begin_table().map_err(error::io_error)?, state: &self.state })
    }

    /// Publishes table files, oldest first, and newer changes, all at once. They are durable when this returns, together with all earlier
    /// writes: the rows of the memtable become a table below those of the run, which they would hide.
    ///
    /// Callers wait meanwhile, so all files are synced at once: the call takes as long as three syncs, one after the other.
    pub(crate) fn ingest(
        &self,
        tables: &[layer::FinishedTable],
        changes: &Changes,
    ) -> Result<(), EngineError> {
        self.finish_flush()?;
        let state = &self.state;
        // The names of the new files in the directory become durable with the manifest.
        let first_log = state.log.get().map(WriteAheadLog::rotate_unsynced).transpose();
        let first_log = first_log.map_err(error::io_error)?.unwrap_or_default();
        let built = state.build_above_and_below(changes);
        let (above, below) = match built {
            Ok(built) => built,
            Err(error) => {
                let synced = state.log.get().map_or(Ok(()), WriteAheadLog::sync_directory);
                synced.map_err(|error| EngineError::Uncertain(error.to_string()))?;
                return Err(table_error(error));
            }
        };
        let (above, mut unsynced) = above.into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
        let (below, files) = below.into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
        unsynced.extend(files);
        let run = tables.iter().rev().map(FinishedTable::to_be_named);
        let added: Vec<Arc<FileTable>> = above.into_iter().chain(run).chain(below).collect();
        let installed = state.install(Some(first_log), &unsynced, |view| View {
            memtable: Arc::default(),
            frozen: None,
            tables: added.iter().chain(&view.tables).cloned().collect(),
        });
        // The manifest may have been replaced, so that the rows may be there after a crash.
        installed.map_err(|error| EngineError::Uncertain(error.to_string()))?;
        state.delete_logs_before(first_log);
        self.merger.wake();
        Ok(())
    }

    /// Freezes the memtable for a flush, unless one is running.
    pub(crate) fn begin_flush_unless_running(&self) -> Result<(), EngineError> {
        let view = self.state.view();
        if view.frozen.is_some() || view.memtable.is_empty() { Ok(()) } else { self.begin_flush() }
    }

    /// Returns the memory in use by memtables, the cache and open tables, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let view = self.state.view();
        let memtables: usize = view.memtables().map(|memtable| memtable.len_bytes()).sum();
        let tables: usize = view.tables.iter().map(|table| table.kept_bytes()).sum();
        self.state.cache.len_bytes() + (memtables + tables) as u64
    }

    /// Freezes a full memtable. Waits while an earlier one is being written.
    fn make_room(&self) -> Result<(), EngineError> {
        if !self.state.is_memtable_full() {
            return Ok(());
        }
        self.finish_flush()?;
        self.merger.wake();
        self.begin_flush()
    }

    fn begin_flush(&self) -> Result<(), EngineError> {
        self.state.freeze()?;
        self.flusher.wake();
        Ok(())
    }

    /// Waits until no memtable is frozen. A flush that failed earlier is tried again.
    pub(crate) fn finish_flush(&self) -> Result<(), EngineError> {
        if self.state.forget_failed_flush() {
            self.flusher.wake();
        }
        self.state.wait_for_flush()
    }
}

impl Drop for Lsm {
    fn drop(&mut self) {
        self.state.is_closing.store(true, Ordering::Release);
    }
}

impl State {
    fn open(dir: &Path, cache_bytes: usize, manifest: Manifest) -> Result<Self, EngineError> {
        let numbers: Vec<u64> = manifest.tables.iter().map(|(number, _)| *number).collect();
        table_file::delete_unnamed(dir, &numbers).map_err(unavailable)?;
        write_ahead_log::delete_before(dir, manifest.first_log).map_err(unavailable)?;
        let memtable_bytes_max = MEMTABLE_BYTES_MAX.min(cache_bytes / 4);
        // Two memtables can be in memory beside the cache.
        let cache = Arc::new(sst::Cache::new((cache_bytes - 2 * memtable_bytes_max) as u64));
        let open = |(number, len_bytes): &(u64, u64)| table_file::open(dir, *number, *len_bytes, &cache);
        let tables = manifest.tables.iter().map(open).collect::<sst::Result<_>>().map_err(table_error)?;
        Ok(Self {
            dir: dir.to_owned(),
            view: RwLock::new(Arc::new(View { tables, ..View::default() })),
            cache,
            readers: Arc::default(),
            log: OnceLock::new(),
            memtable_bytes_max,
            next_table: AtomicU64::new(numbers.iter().max().map_or(1, |last| last + 1)),
            manifest: Mutex::new(manifest),
            flush: Mutex::default(),
            flush_ended: Condvar::new(),
            bad_end: OnceLock::new(),
            is_closing: AtomicBool::new(false),
        })
    }

    /// Applies the log's records to the memtable and begins the next log file.
    fn replay_log(&self) -> Result<(), EngineError> {
        let first = lock(&self.manifest).first_log;
        let replayed = write_ahead_log::replay(&self.dir, first, |record| {
            let damaged = || EngineError::Corrupt("a record of the write-ahead log is damaged".into());
            let (changes, removed_range) = journal::decode(record).ok_or_else(damaged)?;
            let removed = self.keys_in(removed_range.as_ref())?;
            self.insert(changes, removed);
            Ok::<_, ReplayError>(())
        });
        let replayed = replayed.map_err(|ReplayError(error)| error)?;
        if let Some(end) = replayed.bad_end {
            self.bad_end.get_or_init(|| end);
        }
        let log = WriteAheadLog::begin(&self.dir, replayed.next).map_err(error::io_error)?;
        self.log.get_or_init(|| log);
        Ok(())
    }

    fn view(&self) -> Arc<View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the view, so that reads from now on see the new one.
    fn publish(&self, next: impl FnOnce(&View) -> View) {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        *view = Arc::new(next(&view));
    }

    fn cursor(&self, to: Option<Vec<u8>>) -> Cursor<'_> {
        // The view comes first, as for a snapshot.
        let view = self.view();
        let guard = self.readers.begin();
        Cursor::new(view, guard.version, Some(guard), to)
    }

    /// Returns the keys of the rows in a range.
    fn keys_in(&self, range: Option<&KeyRange>) -> Result<Vec<Bytes>, EngineError> {
        let Some(range) = range else { return Ok(Vec::new()) };
        let mut cursor = self.cursor(Some(range.to.clone()));
        cursor.seek(&range.from);
        let mut keys = Vec::new();
        while let Some((key, _)) = cursor.item() {
            keys.push(Bytes::copy_from_slice(key));
            cursor.next();
        }
        cursor.finish()?;
        Ok(keys)
    }

    /// Adds one publication to the memtable: a tombstone for each removed key, then the changes.
    fn insert(&self, changes: Changes, mut removed: Vec<Bytes>) {
        let (oldest_reader, newest) = self.readers.oldest_and_newest();
        removed.retain(|key| !changes.contains_key(&key[..]));
        let tombstones = removed.into_iter().map(|key| (key, Bytes::new()));
        let rows = changes.into_iter().map(|(key, row)| {
            let is_tombstone = row.is_none();
            // Boxed slices drop the spare capacity of the vectors, which would stay in memory.
            let [key, value] =
                [key, row.unwrap_or_default()].map(|bytes| Bytes::from(bytes.into_boxed_slice()));
            assert_eq!(value.is_empty(), is_tombstone, "an empty row would be a tombstone");
            (key, value)
        });
        let memtable = self.view().memtable.clone();
        memtable
            .insert(tombstones.chain(rows), newest + 1, oldest_reader, || self.readers.publish(newest + 1));
    }

    fn is_memtable_full(&self) -> bool {
        self.view().memtable.len_bytes() >= self.memtable_bytes_max
    }

    /// Freezes the memtable and begins a new one, with a log file of its own. No memtable may be frozen already.
    fn freeze(&self) -> Result<(), EngineError> {
        let log = self.log.get().map(WriteAheadLog::rotate).transpose().map_err(error::io_error)?;
        let mut flush = lock(&self.flush);
        flush.first_log = log.unwrap_or_default();
        flush.is_running = true;
        self.publish(|view| {
            assert!(view.frozen.is_none(), "only one memtable is frozen at a time");
            View {
                memtable: Arc::default(),
                frozen: Some(view.memtable.clone()),
                tables: view.tables.clone(),
            }
        });
        Ok(())
    }

    /// Forgets that the last flush failed, and returns whether it did. The caller begins it again.
    fn forget_failed_flush(&self) -> bool {
        let mut flush = lock(&self.flush);
        let has_failed = flush.error.take().is_some();
        flush.is_running |= has_failed;
        has_failed
    }

    /// Waits for the end of a flush in progress. Returns the error if the last flush failed.
    fn wait_for_flush(&self) -> Result<(), EngineError> {
        let flush = self.flush_ended.wait_while(lock(&self.flush), |flush| flush.is_running);
        flush.unwrap_or_else(PoisonError::into_inner).error.clone().map_or(Ok(()), Err)
    }

    /// Writes the frozen memtable as a table file, if there is one.
    fn flush_frozen(&self) {
        let Some(frozen) = self.view().frozen.clone() else { return };
        let first_log = lock(&self.flush).first_log;
        let outcome = self.write_frozen(&frozen, first_log);
        if let Err(error) = &outcome {
            tracing::warn!(
                "the metadata in memory could not be written to a table file: {error}; it stays in memory and is written later"
            );
        }
        let mut flush = lock(&self.flush);
        flush.error = outcome.err();
        flush.is_running = false;
        self.flush_ended.notify_all();
    }

    /// Writes the frozen memtable as a table file, names it in the manifest, and deletes the log files that it makes unnecessary.
    fn write_frozen(&self, frozen: &Arc<Memtable>, first_log: u64) -> Result<(), EngineError> {
        // Without older tables there is nothing that a tombstone could hide.
        let keeps_tombstones = !self.view().tables.is_empty();
        let rows = memtable::scan(frozen, Version::MAX, Bound::Unbounded);
        let table = self.build_merged_table([rows], keeps_tombstones).map_err(table_error)?;
        self.install(Some(first_log), &[], |view| View {
            frozen: None,
            tables: table.iter().cloned().chain(view.tables.iter().cloned()).collect(),
            ..view.clone()
        })?;
        self.delete_logs_before(first_log);
        Ok(())
    }

    /// Deletes the log files before a number, whose records are in table files. A failure only costs disk space.
    fn delete_logs_before(&self, first_log: u64) {
        if let Err(error) = write_ahead_log::delete_before(&self.dir, first_log) {
            tracing::warn!(
                "log files that are not needed any longer could not be deleted: {error}; they take disk space until a later flush deletes them"
            );
        }
    }

    /// Writes the table files of an ingestion that are not in its run: of the changes, which come above the run, and of the memtable, whose
    /// rows come below. The memtable stays as it is.
    fn build_above_and_below(&self, changes: &Changes) -> sst::Result<(Option<Unsynced>, Option<Unsynced>)> {
        let mut above = self.begin_table()?;
        for (key, row) in changes {
            above.add(key, row.as_deref().unwrap_or_default())?;
        }
        let above = above.finish_unsynced(&self.dir, &self.cache)?;
        let view = self.view();
        let rows = memtable::scan(&view.memtable, Version::MAX, Bound::Unbounded);
        let below = self.fill_table([rows], !view.tables.is_empty());
        let below = below.and_then(|table| table.finish_unsynced(&self.dir, &self.cache));
        if below.is_err() {
            above.iter().for_each(|(table, _)| table.mark_obsolete());
        }
        Ok((above, below?))
    }

    /// Writes a table file of the newest rows of inputs, newest first. Returns `None` if there are none.
    fn build_merged_table<C: sst::Sorted>(
        &self,
        inputs: impl IntoIterator<Item = C>,
        keeps_tombstones: bool,
    ) -> sst::Result<Option<Arc<FileTable>>> {
        self.fill_table(inputs, keeps_tombstones)?.finish(&self.dir, &self.cache)
    }

    /// Writes the newest rows of inputs, newest input first, to a table file that is not finished. Without `keeps_tombstones`, leaves
    /// tombstones out.
    fn fill_table<C: sst::Sorted>(
        &self,
        inputs: impl IntoIterator<Item = C>,
        keeps_tombstones: bool,
    ) -> sst::Result<NewTable> {
        let mut table = self.begin_table()?;
        let mut rows = sst::Merge::new(inputs);
        while rows.advance()? {
            if keeps_tombstones || !rows.value().is_empty() {
                table.add(rows.key(), rows.value())?;
            }
        }
        Ok(table)
    }

    fn begin_table(&self) -> io::Result<NewTable> {
        NewTable::create(&self.dir, self.next_table.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes a change of the list of tables durable, and publishes it. `first_log` is the first log file that is still needed, if that changes.
    /// Makes the bytes of the files in `unsynced` durable before.
    fn install(
        &self,
        first_log: Option<u64>,
        unsynced: &[File],
        next: impl Fn(&View) -> View,
    ) -> Result<(), EngineError> {
        let mut manifest = lock(&self.manifest);
        let first_log = first_log.unwrap_or(manifest.first_log);
        let tables = next(&self.view()).tables;
        let names = tables.iter().map(|table| table_file::name_of(table));
        let stored = Manifest { first_log, tables: names.collect() };
        stored.store(&self.dir, unsynced).map_err(error::io_error)?;
        *manifest = stored;
        self.publish(next);
        Ok(())
    }
}

impl View {
    /// Returns the memtables, newest first.
    fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.memtable).chain(&self.frozen)
    }

    /// Returns the row of a key that a reader of a version sees; `None` if there is none, or a tombstone.
    fn get(&self, key: &[u8], version: Version) -> Result<Option<Bytes>, EngineError> {
        let is_row = |value: &Bytes| !value.is_empty();
        if let Some(value) = self.memtables().find_map(|memtable| memtable.get(key, version)) {
            return Ok(Some(value).filter(is_row));
        }
        for table in &self.tables {
            if let Some(value) = table.get(key).map_err(table_error)? {
                return Ok(Some(value).filter(is_row));
            }
        }
        Ok(None)
    }

    /// Returns the last row of a range; `None` if it has no row. Tombstones at the end of the range are passed over one
    /// by one.
    fn last(&self, range: &KeyRange, version: Version) -> Result<Option<(Bytes, Bytes)>, EngineError> {
        let mut before = Bytes::copy_from_slice(&range.to);
        while let Some((key, value)) =
            self.last_before(&before, version)?.filter(|(key, _)| key[..] >= range.from[..])
        {
            if !value.is_empty() {
                return Ok(Some((key, value)));
            }
            before = key;
        }
        Ok(None)
    }

    /// Returns the last entry before a key, with its newest value, which may be a tombstone.
    fn last_before(&self, before: &[u8], version: Version) -> Result<Option<(Bytes, Bytes)>, EngineError> {
        let mut last: Option<(Bytes, Bytes)> = None;
        // A later input has older values, so it counts only if its key is greater.
        let mut consider = |found: Option<(Bytes, Bytes)>| {
            let is_greater = |(key, _): &(Bytes, Bytes)| last.as_ref().is_none_or(|(last, _)| key > last);
            if let Some(found) = found.filter(is_greater) {
                last = Some(found);
            }
        };
        for memtable in self.memtables() {
            consider(memtable.last_before(before, version));
        }
        for table in &self.tables {
            let found = table.last_before(before).map_err(table_error)?;
            consider(found.map(|(key, value)| (key.into(), value)));
        }
        Ok(last)
    }
}

/// Creates the files of an empty tree.
fn create(dir: &Path) -> io::Result<Manifest> {
    let manifest = Manifest { first_log: 1, tables: Vec::new() };
    manifest.store(dir, &[])?;
    Ok(manifest)
}

/// An error of a replay of the log.
struct ReplayError(EngineError);

impl From<EngineError> for ReplayError {
    fn from(error: EngineError) -> Self {
        Self(error)
    }
}

impl From<io::Error> for ReplayError {
    fn from(error: io::Error) -> Self {
        Self(unavailable(error))
    }
}

fn unavailable(error: io::Error) -> EngineError {
    EngineError::Unavailable(error.to_string())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
