//! The database: reading rows, publishing changes.
//!
//! Invariant: a reader sees all of a publication or nothing of it, and never the records that engines keep to themselves.

use crate::journal::{self, Journal, Records};
use crate::{error, row};
use meta::codec::{decode_number, encode_number};
use meta::{EngineError, KeyRange, Rows, Versioned, schema};
use rust_rocksdb::{
    Cache, DB, DBPinnableSlice, DBRawIterator, FlushOptions, IngestExternalFileOptions, Options, ReadOptions,
    SstFileWriter, WriteBatch, WriteOptions,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::{fs, io};

/// Keys with what is put there, or nothing if the key goes.
pub(crate) type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

pub(crate) struct Tables {
    db: DB,
    cache: Cache,
    options: Options,
    /// Where a table file is made.
    run_path: PathBuf,
    journal: Option<Journaled>,
    /// A call found no room.
    was_full: AtomicBool,
}

/// The journal, and what of it is only in memory.
struct Journaled {
    journal: Arc<dyn Journal>,
    newest: AtomicU64,
    unflushed_bytes: AtomicU64,
}

/// So many bytes of records are only in memory before the tables are flushed.
const UNFLUSHED_BYTES_MAX: u64 = 16 << 20;

/// A table takes at least so much, with what says that it is there.
const TABLE_BYTES_MIN: u64 = 1 << 20;

impl Tables {
    pub(crate) fn open(
        path: &Path,
        options: Options,
        cache: Cache,
        run_path: PathBuf,
    ) -> Result<Self, EngineError> {
        let db = DB::open(&options, path).map_err(error::of_open)?;
        Ok(Self { db, cache, options, run_path, journal: None, was_full: AtomicBool::new(false) })
    }

    /// Puts a journal in front, after applying those of its records that the tables do not have.
    pub(crate) fn journal(&mut self, journal: Arc<dyn Journal>, records: Records) -> Result<(), EngineError> {
        let applied = self.stored(&schema::journal())?.map(|number| decode_number(&number)).transpose()?;
        let applied = applied.unwrap_or(0);
        let mut newest = applied;
        for (number, record) in records.into_iter().filter(|(number, _)| *number > applied) {
            let damaged = || EngineError::Corrupt(format!("record {number} of the journal"));
            let (changes, gone) = journal::decode(&record).ok_or_else(damaged)?;
            self.write_batch(&changes, gone.as_ref(), Some(number))?;
            newest = number;
        }
        let (newest, unflushed_bytes) = (AtomicU64::new(newest), AtomicU64::new(0));
        self.journal = Some(Journaled { journal, newest, unflushed_bytes });
        self.checkpoint()
    }

    pub(crate) fn is_journaled(&self) -> bool {
        self.journal.is_some()
    }

    /// Brings to the disk what is only in memory, after the records that made it. Nobody writes meanwhile.
    pub(crate) fn checkpoint(&self) -> Result<(), EngineError> {
        let Some(journaled) = &self.journal else { return Ok(()) };
        let newest = journaled.newest.load(Ordering::Acquire);
        journaled.journal.sync().map_err(of_journal)?;
        self.has_room_for(journaled.unflushed_bytes.load(Ordering::Acquire))?;
        self.go_on()?;
        self.noted(self.db.flush_opt(&FlushOptions::default()).map_err(error::of_write))?;
        journaled.unflushed_bytes.store(0, Ordering::Release);
        journaled.journal.forget(newest).map_err(of_journal)
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        if schema::is_kept_by_engines(key) {
            return Ok(None);
        }
        self.stored(key)?.map(|row| row::decode(&row)).transpose()
    }

    /// What is stored under a key of any family.
    pub(crate) fn stored(&self, key: &[u8]) -> Result<Option<DBPinnableSlice<'_>>, EngineError> {
        self.db.get_pinned(key).map_err(error::of_read)
    }

    pub(crate) fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        let rows = self.db.batched_multi_get_pinned(keys, false);
        let decoded = keys.iter().zip(rows).map(|(key, row)| match row.map_err(error::of_read)? {
            Some(row) if !schema::is_kept_by_engines(key) => row::decode(&row).map(Some),
            _ => Ok(None),
        });
        decoded.collect()
    }

    pub(crate) fn scan(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> Result<Rows, EngineError> {
        let mut rows = Vec::new();
        if limit == 0 {
            return Ok(rows);
        }
        let mut walk = self.walk(first_from(from), first_beyond(to));
        while let Some((key, row)) = walk.item() {
            rows.push((key.to_vec(), row::decode(row)?));
            if rows.len() == limit {
                break;
            }
            walk.next();
        }
        walk.end()?;
        Ok(rows)
    }

    /// The records of a range, those aside that engines keep to themselves.
    pub(crate) fn walk(&self, from: Vec<u8>, to: Option<Vec<u8>>) -> Walk<'_> {
        let void = to.as_ref().is_some_and(|to| *to <= from);
        let mut iterator = self.iterator(to);
        if !void {
            iterator.seek(from);
        }
        let mut walk = Walk { iterator, void };
        walk.skip_kept();
        walk
    }

    /// All that is stored in a range of any family.
    pub(crate) fn each_stored(
        &self,
        range: &KeyRange,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<bool, EngineError>,
    ) -> Result<(), EngineError> {
        let mut iterator = self.iterator(Some(range.to.clone()));
        iterator.seek(&range.from);
        while let Some((key, value)) = iterator.item() {
            if !visit(key, value)? {
                break;
            }
            iterator.next();
        }
        iterator.status().map_err(error::of_read)
    }

    fn iterator(&self, to: Option<Vec<u8>>) -> DBRawIterator<'_> {
        let mut options = ReadOptions::default();
        if let Some(to) = to {
            options.set_iterate_upper_bound(to);
        }
        self.db.raw_iterator_opt(options)
    }

    /// Publishes changes as one batch, and removes a range with it. One caller at a time.
    pub(crate) fn write(&self, changes: &Changes, gone: Option<&KeyRange>) -> Result<(), EngineError> {
        let Some(journaled) = &self.journal else { return self.write_batch(changes, gone, None) };
        let record = journal::encode(changes, gone);
        let bytes = record.len() as u64;
        let number = journaled.newest.load(Ordering::Acquire) + 1;
        // What the database would refuse must not be in the journal.
        self.go_on()?;
        journaled.journal.append(number, record).map_err(of_journal)?;
        self.write_batch(changes, gone, Some(number))?;
        journaled.newest.store(number, Ordering::Release);
        let unflushed = journaled.unflushed_bytes.fetch_add(bytes, Ordering::AcqRel) + bytes;
        match if unflushed > UNFLUSHED_BYTES_MAX { self.checkpoint() } else { Ok(()) } {
            // The change is made, and in the journal.
            Err(EngineError::Full(_)) => Ok(()),
            outcome => outcome,
        }
    }

    /// Writes a batch; one that is in the journal under a number is not in the database's own log.
    fn write_batch(
        &self,
        changes: &Changes,
        gone: Option<&KeyRange>,
        journaled_as: Option<u64>,
    ) -> Result<(), EngineError> {
        let mut batch = WriteBatch::default();
        for (key, row) in changes {
            match row {
                Some(row) => batch.put(key, row),
                None => batch.delete(key),
            }
        }
        if let Some(range) = gone {
            batch.delete_range(&range.from, &range.to);
        }
        let mut options = WriteOptions::default();
        if let Some(number) = journaled_as {
            batch.put(schema::journal(), encode_number(number));
            options.disable_wal(true);
        }
        self.go_on()?;
        self.noted(self.db.write_opt(&batch, &options).map_err(error::of_write))
    }

    /// After its disk was full, the database refuses everything until it has found, or is told, that there is room again.
    fn go_on(&self) -> Result<(), EngineError> {
        if !self.was_full.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        self.noted(self.db.resume().map_err(error::of_resume))
    }

    /// A table that finds its disk full stops the database until half a GiB is free, so none is begun then.
    fn has_room_for(&self, bytes: u64) -> Result<(), EngineError> {
        let disk = rustix::fs::statvfs(self.db.path()).map_err(|error| of_journal(error.into()))?;
        let free = disk.f_bavail * disk.f_frsize;
        if free >= 2 * bytes + TABLE_BYTES_MIN {
            return Ok(());
        }
        Err(EngineError::Full(format!("{free} bytes are free on the disk of the tables")))
    }

    fn noted<T>(&self, outcome: Result<T, EngineError>) -> Result<T, EngineError> {
        if matches!(outcome, Err(EngineError::Full(_))) {
            self.was_full.store(true, Ordering::Release);
        }
        outcome
    }

    /// Publishes changes as one table file, which is durable then. All before must have been synced.
    pub(crate) fn ingest(&self, changes: &Changes) -> Result<(), EngineError> {
        let made = self.make_run(changes).map_err(|error| {
            let _ = fs::remove_file(&self.run_path);
            EngineError::Unavailable(error.into_string())
        });
        made?;
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        self.db.ingest_external_file_opts(&options, vec![&self.run_path]).map_err(error::of_write)
    }

    fn make_run(&self, changes: &Changes) -> Result<(), rust_rocksdb::Error> {
        let mut writer = SstFileWriter::create(&self.options);
        writer.open(&self.run_path)?;
        for (key, row) in changes {
            match row {
                Some(row) => writer.put(key, row)?,
                None => writer.delete(key)?,
            }
        }
        writer.finish()
    }

    /// What has been written survives the loss of power when this returns.
    pub(crate) fn sync(&self) -> Result<(), EngineError> {
        match &self.journal {
            Some(journaled) => journaled.journal.sync().map_err(of_journal),
            None => self.db.flush_wal(true).map_err(error::of_write),
        }
    }

    /// Cached blocks and write buffers.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.cache.get_usage() as u64
    }
}

fn of_journal(error: io::Error) -> EngineError {
    let text = format!("the journal: {error}");
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => EngineError::Full(text),
        _ => EngineError::Unavailable(text),
    }
}

/// The records of a range, one after the other.
pub(crate) struct Walk<'a> {
    iterator: DBRawIterator<'a>,
    void: bool,
}

impl Walk<'_> {
    pub(crate) fn item(&self) -> Option<(&[u8], &[u8])> {
        if self.void { None } else { self.iterator.item() }
    }

    pub(crate) fn next(&mut self) {
        self.iterator.next();
        self.skip_kept();
    }

    /// Goes to a key or the first one behind it.
    pub(crate) fn seek(&mut self, key: &[u8]) {
        self.iterator.seek(key);
        self.skip_kept();
    }

    /// Whether it ended because there was no more.
    pub(crate) fn end(self) -> Result<(), EngineError> {
        self.iterator.status().map_err(error::of_read)
    }

    fn skip_kept(&mut self) {
        while let Some((&[tag, ..], _)) = self.item()
            && schema::is_kept_by_engines(&[tag])
        {
            self.iterator.seek([tag + 1]);
        }
    }
}

fn first_from(from: Bound<&[u8]>) -> Vec<u8> {
    match from {
        Bound::Included(key) => key.to_vec(),
        Bound::Excluded(key) => successor(key),
        Bound::Unbounded => Vec::new(),
    }
}

fn first_beyond(to: Bound<&[u8]>) -> Option<Vec<u8>> {
    match to {
        Bound::Included(key) => Some(successor(key)),
        Bound::Excluded(key) => Some(key.to_vec()),
        Bound::Unbounded => None,
    }
}

/// The key right behind a key.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
