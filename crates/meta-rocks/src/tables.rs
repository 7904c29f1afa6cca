//! The database: reading rows, publishing changes.
//!
//! Invariant: a reader sees all of a publication or nothing of it, and never the records that engines keep to themselves.

use crate::journal::{self, Journal, Records};
use crate::open_databases::Counted;
use crate::{error, row};
use meta::codec::{decode_number, encode_number};
use meta::{EngineError, KeyRange, Rows, Versioned, schema};
use rust_rocksdb::{
    Cache, DB, DBPinnableSlice, DBRawIterator, FlushOptions, IngestExternalFileOptions, Options, ReadOptions,
    SstFileWriter, WriteBatch, WriteOptions,
};
use std::collections::{BTreeMap, BTreeSet};
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
    /// Test hook: the next write to the database fails with this error.
    #[cfg(test)]
    fails_next: std::sync::Mutex<Option<EngineError>>,
    /// The last field: dropped after the database.
    _counted: Counted,
}

/// The journal, and what of it is only in memory.
struct Journaled {
    journal: Arc<dyn Journal>,
    /// The highest number given to a record, whether or not its changes reached the tables.
    newest: AtomicU64,
    /// The newest number in the tables; lower than `newest` where the tables refused the changes of the newest records.
    applied: AtomicU64,
    /// Bytes of records whose changes the tables hold only in memory.
    unflushed_bytes: AtomicU64,
    /// The record that must be cancelled before another is appended: its changes never reached the tables. Zero if none.
    to_cancel: AtomicU64,
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
        let counted = Counted::new();
        let db = DB::open(&options, path).map_err(error::of_open)?;
        Ok(Self {
            db,
            cache,
            options,
            run_path,
            journal: None,
            was_full: AtomicBool::new(false),
            #[cfg(test)]
            fails_next: std::sync::Mutex::default(),
            _counted: counted,
        })
    }

    /// Puts a journal in front, after applying those of its records that the tables do not have. A record is the difference to
    /// the state before it, so none counts after one that is missing.
    pub(crate) fn journal(
        &mut self,
        journal: Arc<dyn Journal>,
        records: Records,
        ends_at_gap: bool,
    ) -> Result<(), EngineError> {
        let applied = self.stored(&schema::journal())?.map(|number| decode_number(&number)).transpose()?;
        let applied = applied.unwrap_or(0);
        let (mut newest, mut applied_to) = (applied, applied);
        let last = records.last().map_or(0, |(number, _)| *number);
        let cancelled: BTreeSet<u64> =
            records.iter().filter_map(|(_, record)| journal::decode_cancel(record)).collect();
        for (number, record) in records.into_iter().filter(|(number, _)| *number > applied) {
            if number != newest + 1 {
                let text = format!("records {} to {} of the journal are missing", newest + 1, number - 1);
                if !ends_at_gap {
                    return Err(EngineError::Corrupt(text));
                }
                tracing::error!("{text}; changes of names in them and after them are lost");
                // Their numbers are used up: the tables take them for applied.
                self.write_batch(&Changes::new(), None, Some(last))?;
                (newest, applied_to) = (last, last);
                break;
            }
            newest = number;
            if cancelled.contains(&number) {
                continue;
            }
            let damaged = || EngineError::Corrupt(format!("record {number} of the journal"));
            let (changes, gone) = journal::decode(&record).ok_or_else(damaged)?;
            self.write_batch(&changes, gone.as_ref(), Some(number))?;
            applied_to = number;
        }
        self.journal = Some(Journaled {
            journal,
            newest: AtomicU64::new(newest),
            applied: AtomicU64::new(applied_to),
            unflushed_bytes: AtomicU64::new(0),
            to_cancel: AtomicU64::new(0),
        });
        self.checkpoint()
    }

    pub(crate) fn is_journaled(&self) -> bool {
        self.journal.is_some()
    }

    /// Whether a record of the journal must be cancelled before the next commit, so that no commit can follow it.
    pub(crate) fn owes_cancellation(&self) -> bool {
        self.journal.as_ref().is_some_and(|journaled| journaled.to_cancel.load(Ordering::Acquire) != 0)
    }

    /// Brings to the disk what is only in memory, after the records that made it. Nobody writes meanwhile.
    pub(crate) fn checkpoint(&self) -> Result<(), EngineError> {
        let Some(journaled) = &self.journal else { return Ok(()) };
        let newest = journaled.newest.load(Ordering::Acquire);
        journaled.journal.sync().map_err(of_journal)?;
        self.has_room_for(journaled.unflushed_bytes.load(Ordering::Acquire))?;
        self.go_on()?;
        if journaled.applied.load(Ordering::Acquire) < newest {
            // Records whose changes never came here are forgotten with the others, and must not look lost to the next replay.
            self.write_batch(&Changes::new(), None, Some(newest))?;
            journaled.applied.store(newest, Ordering::Release);
        }
        self.noted(self.db.flush_opt(&FlushOptions::default()).map_err(error::of_write))?;
        journaled.unflushed_bytes.store(0, Ordering::Release);
        journaled.journal.forget(newest).map_err(of_journal)?;
        // A forgotten record is not replayed, so it needs no cancellation.
        journaled.to_cancel.store(0, Ordering::Release);
        Ok(())
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
        first_rows(|options| self.db.raw_iterator_opt(options), from, to, limit)
    }

    /// Returns the last record of a range that holds no key which engines keep to themselves.
    pub(crate) fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        last_row(|options| self.db.raw_iterator_opt(options), range)
    }

    pub(crate) fn database(&self) -> &DB {
        &self.db
    }

    /// The records of a range, those aside that engines keep to themselves.
    pub(crate) fn walk(&self, from: Vec<u8>, to: Option<Vec<u8>>) -> Walk<'_> {
        Walk::begin(|options| self.db.raw_iterator_opt(options), from, to)
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

    /// Visits everything that is stored, as it is when the visit begins, but for what belongs to the journal.
    pub(crate) fn dump<E: From<EngineError>>(
        &self,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        // An iterator sees what there was when it was made, and publications are atomic: this is one commit's state.
        let mut iterator = self.iterator(None);
        let journal = schema::journal();
        iterator.seek_to_first();
        while let Some((key, row)) = iterator.item() {
            if *key != *journal {
                visit(key, row)?;
            }
            iterator.next();
        }
        Ok(iterator.status().map_err(error::of_read)?)
    }

    fn iterator(&self, to: Option<Vec<u8>>) -> DBRawIterator<'_> {
        self.db.raw_iterator_opt(up_to(to))
    }

    /// Publishes changes as one batch, and removes a range with it. One caller at a time.
    pub(crate) fn write(&self, changes: &Changes, gone: Option<&KeyRange>) -> Result<(), EngineError> {
        let Some(journaled) = &self.journal else { return self.write_batch(changes, gone, None) };
        let record = journal::encode(changes, gone);
        let bytes = record.len() as u64;
        // What the database would refuse must not be in the journal.
        self.go_on()?;
        journaled.cancel_failed()?;
        let number = journaled.append(record)?;
        if let Err(error) = self.write_batch(changes, gone, Some(number)) {
            journaled.to_cancel.store(number, Ordering::Release);
            return match journaled.cancel_failed() {
                Ok(()) => Err(error),
                Err(_) => Err(EngineError::Uncertain(error.to_string())),
            };
        }
        journaled.applied.store(number, Ordering::Release);
        let unflushed = journaled.unflushed_bytes.fetch_add(bytes, Ordering::AcqRel) + bytes;
        if unflushed > UNFLUSHED_BYTES_MAX
            && let Err(error) = self.checkpoint()
        {
            // The change is made and in the journal, so the commit has succeeded. The next commit tries again, and a
            // journal that cannot sync says so to the next fsync.
            tracing::warn!("the metadata tables were not brought to the disk: {error}");
        }
        Ok(())
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
        #[cfg(test)]
        if let Some(error) = self.fails_next.lock().ok().and_then(|mut next| next.take()) {
            return Err(error);
        }
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

impl Journaled {
    /// Appends a record under the next number, which no other record ever gets, and returns the number.
    fn append(&self, record: Vec<u8>) -> Result<u64, EngineError> {
        let number = self.newest.load(Ordering::Acquire) + 1;
        self.journal.append(number, record).map_err(of_journal)?;
        self.newest.store(number, Ordering::Release);
        Ok(number)
    }

    /// Cancels the record whose changes never reached the tables, if there is one, so that a replay leaves it out.
    fn cancel_failed(&self) -> Result<(), EngineError> {
        let failed = self.to_cancel.load(Ordering::Acquire);
        if failed != 0 {
            self.append(journal::encode_cancel(failed))?;
            self.to_cancel.store(0, Ordering::Release);
        }
        Ok(())
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

impl<'a> Walk<'a> {
    fn begin(
        iterator: impl FnOnce(ReadOptions) -> DBRawIterator<'a>,
        from: Vec<u8>,
        to: Option<Vec<u8>>,
    ) -> Self {
        let void = to.as_ref().is_some_and(|to| *to <= from);
        let mut iterator = iterator(up_to(to));
        if !void {
            iterator.seek(from);
        }
        let mut walk = Self { iterator, void };
        walk.skip_kept();
        walk
    }

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

fn up_to(to: Option<Vec<u8>>) -> ReadOptions {
    let mut options = ReadOptions::default();
    if let Some(to) = to {
        options.set_iterate_upper_bound(to);
    }
    options
}

/// Returns the first `limit` records of a range, those aside that engines keep to themselves.
pub(crate) fn first_rows<'a>(
    iterator: impl FnOnce(ReadOptions) -> DBRawIterator<'a>,
    from: Bound<&[u8]>,
    to: Bound<&[u8]>,
    limit: usize,
) -> Result<Rows, EngineError> {
    let mut rows = Vec::new();
    if limit == 0 {
        return Ok(rows);
    }
    let mut walk = Walk::begin(iterator, first_from(from), first_beyond(to));
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

/// Returns the last record of a range that holds no key which engines keep to themselves.
pub(crate) fn last_row<'a>(
    iterator: impl FnOnce(ReadOptions) -> DBRawIterator<'a>,
    range: &KeyRange,
) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
    if range.to <= range.from {
        return Ok(None);
    }
    let mut options = up_to(Some(range.to.clone()));
    options.set_iterate_lower_bound(range.from.clone());
    let mut iterator = iterator(options);
    iterator.seek_to_last();
    let found = iterator.item().map(|(key, row)| Ok((key.to_vec(), row::decode(row)?))).transpose();
    iterator.status().map_err(error::of_read)?;
    found
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RocksOptions;
    use std::io::ErrorKind;
    use std::sync::Mutex;

    /// A journal in memory whose calls fail on request.
    #[derive(Debug, Default)]
    struct Fragile {
        records: Mutex<Records>,
        /// Appends that succeed before all others fail.
        appends_left: Mutex<Option<usize>>,
        syncs_fail: AtomicBool,
    }

    impl Journal for Fragile {
        fn append(&self, number: u64, record: Vec<u8>) -> io::Result<()> {
            if let Some(left) = &mut *self.appends_left.lock().unwrap() {
                *left = left.checked_sub(1).ok_or(ErrorKind::StorageFull)?;
            }
            let mut records = self.records.lock().unwrap();
            assert!(
                records.last().is_none_or(|(last, _)| *last < number),
                "numbers ascend and are used once"
            );
            records.push((number, record));
            Ok(())
        }

        fn sync(&self) -> io::Result<()> {
            if self.syncs_fail.load(Ordering::Acquire) { Err(io::Error::other("EIO")) } else { Ok(()) }
        }

        fn forget(&self, up_to: u64) -> io::Result<()> {
            self.records.lock().unwrap().retain(|(number, _)| *number > up_to);
            Ok(())
        }
    }

    fn open(path: &Path, journal: &Arc<Fragile>, records: Records) -> Tables {
        let cache = RocksOptions::default().cache();
        let mut options = RocksOptions::default().rocks(&cache, true);
        options.create_if_missing(true);
        let mut tables = Tables::open(&path.join("tables"), options, cache, path.join("run.sst")).unwrap();
        tables.journal(journal.clone(), records, false).unwrap();
        tables
    }

    fn change(key: &str, value: &str) -> Changes {
        [(key.as_bytes().to_vec(), Some(value.as_bytes().to_vec()))].into()
    }

    fn value(tables: &Tables, key: &str) -> Option<Vec<u8>> {
        tables.stored(key.as_bytes()).unwrap().map(|row| row.to_vec())
    }

    /// Copies the records away and opens fresh tables from them alone, as after a crash before any checkpoint.
    fn replayed(journal: &Fragile) -> (tempfile::TempDir, Tables) {
        let folder = tempfile::tempdir().unwrap();
        let records = journal.records.lock().unwrap().clone();
        let tables = open(folder.path(), &Arc::default(), records);
        (folder, tables)
    }

    /// The journal had a record, the database refused the batch, and the commit was answered with "no room". The next
    /// commit reused the number, so that a replay after a crash applied both: a create that had failed, and its retry
    /// under another inode number.
    #[test]
    fn a_commit_that_the_database_refused_is_not_replayed() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Arc::new(Fragile::default());
        let tables = open(folder.path(), &journal, Vec::new());
        *tables.fails_next.lock().unwrap() = Some(EngineError::Full("injected".into()));
        assert_eq!(tables.write(&change("first", "5"), None), Err(EngineError::Full("injected".into())));
        tables.write(&change("second", "6"), None).unwrap();

        let (_folder, replayed) = replayed(&journal);
        assert_eq!(value(&replayed, "first"), None);
        assert_eq!(value(&replayed, "second").unwrap(), b"6");
    }

    /// Records that were cancelled and forgotten are no gap in the journal.
    #[test]
    fn a_checkpoint_after_a_failed_commit_leaves_no_gap() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Arc::new(Fragile::default());
        let tables = open(folder.path(), &journal, Vec::new());
        *tables.fails_next.lock().unwrap() = Some(EngineError::Full("injected".into()));
        tables.write(&change("first", "5"), None).unwrap_err();
        tables.checkpoint().unwrap();
        tables.write(&change("second", "6"), None).unwrap();
        drop(tables);
        let records = journal.records.lock().unwrap().clone();
        let again = open(folder.path(), &journal, records);
        assert_eq!((value(&again, "first"), value(&again, "second").unwrap()), (None, b"6".to_vec()));
    }

    /// Where not even the cancellation finds room, the outcome is unknown, and nothing is committed before the
    /// cancellation is in the journal.
    #[test]
    fn nothing_is_committed_before_a_failed_record_is_cancelled() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Arc::new(Fragile::default());
        let tables = open(folder.path(), &journal, Vec::new());
        *tables.fails_next.lock().unwrap() = Some(EngineError::Full("injected".into()));
        *journal.appends_left.lock().unwrap() = Some(1);
        let refused = tables.write(&change("first", "5"), None);
        assert!(matches!(refused, Err(EngineError::Uncertain(_))), "{refused:?}");
        let refused = tables.write(&change("second", "6"), None);
        assert!(matches!(refused, Err(EngineError::Full(_))), "{refused:?}");
        *journal.appends_left.lock().unwrap() = None;
        tables.write(&change("third", "7"), None).unwrap();

        let (_folder, replayed) = replayed(&journal);
        assert_eq!((value(&replayed, "first"), value(&replayed, "second")), (None, None));
        assert_eq!(value(&replayed, "third").unwrap(), b"7");
    }

    /// The journal could not be synced during an automatic checkpoint, and the commit that had caused the checkpoint was
    /// answered with "nothing has changed" although its rows were visible; the next commit then reused its number.
    #[test]
    fn a_failing_checkpoint_does_not_fail_the_commit_that_caused_it() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Arc::new(Fragile::default());
        let tables = open(folder.path(), &journal, Vec::new());
        journal.syncs_fail.store(true, Ordering::Release);
        let large = "x".repeat(UNFLUSHED_BYTES_MAX as usize);
        tables.write(&change("large", &large), None).unwrap();
        assert_eq!(value(&tables, "large").unwrap().len(), large.len());
        assert!(tables.sync().is_err(), "an fsync is told");
    }
}
