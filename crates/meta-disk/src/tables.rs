//! The tables: reads of rows, and publication of changes, with or without a journal.
//!
//! Invariant: a reader sees a publication completely or not at all, and never sees the engine's own records.

use crate::error::io_error;
use crate::journal::{self, Journal, Records};
use crate::layer::{FinishedTable, Layer, NewTable};
use crate::records::{RecordIterator, first_rows};
use crate::row::{self, Changes};
use crate::snapshot::Snapshot;
use bytes::Bytes;
use meta::codec::{decode_number, encode_number};
use meta::{EngineError, KeyRange, Rows, Versioned, schema};
use std::collections::BTreeSet;
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The tables of an engine, and the journal if changes go to one first.
pub(crate) struct Tables {
    layer: Arc<Layer>,
    journal: Option<JournalState>,
    /// Fault injection: the next write to the layer fails with this error.
    #[cfg(test)]
    next_write_error: std::sync::Mutex<Option<EngineError>>,
}

/// The journal, and which of its records have reached the tables.
struct JournalState {
    journal: Arc<dyn Journal>,
    /// The number of the newest record, whether or not its changes reached the tables.
    newest: AtomicU64,
    /// The number of the newest record whose changes are in the tables. Lower than `newest` if writing the changes of the newest records
    /// failed.
    applied: AtomicU64,
    /// Total size of the records whose changes are only in write buffers.
    unflushed_bytes: AtomicU64,
    /// The record that must be cancelled before another record is appended, because writing its changes to the tables failed; 0 if none.
    to_cancel: AtomicU64,
}

/// Total size of records since the last checkpoint at which a new checkpoint begins.
const UNFLUSHED_BYTES_MAX: u64 = 16 << 20;

impl Tables {
    pub(crate) fn new(layer: Layer) -> Self {
        Self {
            layer: Arc::new(layer),
            journal: None,
            #[cfg(test)]
            next_write_error: std::sync::Mutex::default(),
        }
    }

    /// Applies the records that the tables do not have yet, makes the tables durable, and uses the journal from now on.
    /// A record holds only differences from the state before it, so no record after a missing record can be applied:
    /// without `ends_at_gap` this is an error, otherwise those records are dropped.
    pub(crate) fn replay_journal(
        &mut self,
        journal: Arc<dyn Journal>,
        records: Records,
        ends_at_gap: bool,
    ) -> Result<(), EngineError> {
        let applied =
            self.get_stored(&schema::journal())?.map(|number| decode_number(&number)).transpose()?;
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
                tracing::error!("{text}; the metadata changes in these and all later records are lost");
                // Mark the dropped records as applied, because their numbers must not be reused.
                self.write_batch(Changes::new(), None, Some(last))?;
                (newest, applied_to) = (last, last);
                break;
            }
            newest = number;
            if cancelled.contains(&number) {
                continue;
            }
            let damaged = || EngineError::Corrupt(format!("record {number} of the journal is damaged"));
            let (changes, removed_range) = journal::decode(&record).ok_or_else(damaged)?;
            self.write_batch(changes, removed_range.as_ref(), Some(number))?;
            applied_to = number;
        }
        self.journal = Some(JournalState {
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

    /// Returns whether a record of the journal must be cancelled before the next commit.
    pub(crate) fn has_pending_cancellation(&self) -> bool {
        self.journal.as_ref().is_some_and(|state| state.to_cancel.load(Ordering::Acquire) != 0)
    }

    /// Writes the write buffers to table files, after the journal records with their changes have been synced. Does nothing without a
    /// journal. The caller excludes concurrent writes.
    pub(crate) fn checkpoint(&self) -> Result<(), EngineError> {
        let Some(state) = &self.journal else { return Ok(()) };
        let newest = state.newest.load(Ordering::Acquire);
        state.journal.sync().map_err(journal_error)?;
        if state.applied.load(Ordering::Acquire) < newest {
            // Failed records are dropped from the journal too. Raising the applied number keeps the next replay from reporting a gap.
            self.write_batch(Changes::new(), None, Some(newest))?;
            state.applied.store(newest, Ordering::Release);
        }
        self.layer.flush(state.unflushed_bytes.load(Ordering::Acquire))?;
        state.unflushed_bytes.store(0, Ordering::Release);
        state.journal.forget(newest).map_err(journal_error)?;
        // A dropped record is not replayed, so it needs no cancellation.
        state.to_cancel.store(0, Ordering::Release);
        Ok(())
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        if schema::is_kept_by_engines(key) {
            return Ok(None);
        }
        self.get_stored(key)?.map(|row| row::decode(&row)).transpose()
    }

    /// Returns the row of a key of any family, including the engine's own records.
    pub(crate) fn get_stored(&self, key: &[u8]) -> Result<Option<Bytes>, EngineError> {
        self.layer.get(key)
    }

    pub(crate) fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        let rows = self.layer.multi_get(keys)?;
        let decoded = keys.iter().zip(rows).map(|(key, row)| match row {
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
        first_rows(|to| self.layer.cursor(to), from, to, limit)
    }

    /// Returns the last record of a range; `None` if it has none. The range must not contain the engine's own records.
    pub(crate) fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        if range.to <= range.from {
            return Ok(None);
        }
        self.layer.last(range)?.map(|(key, row)| Ok((key.to_vec(), row::decode(&row)?))).transpose()
    }

    /// Returns a view of the tables that no later commit changes.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot(self.layer.snapshot())
    }

    /// Iterates over the records of a range, without the engine's own records.
    pub(crate) fn iterate(&self, from: Vec<u8>, to: Option<Vec<u8>>) -> RecordIterator<'_> {
        RecordIterator::begin(|to| self.layer.cursor(to), from, to)
    }

    /// Visits all rows of a range of any family, until `visit` returns `false`.
    pub(crate) fn for_each_stored(
        &self,
        range: &KeyRange,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<bool, EngineError>,
    ) -> Result<(), EngineError> {
        let mut cursor = self.layer.cursor(Some(range.to.clone()));
        cursor.seek(&range.from);
        while let Some((key, value)) = cursor.item() {
            if !visit(key, value)? {
                break;
            }
            cursor.next();
        }
        cursor.finish()
    }

    /// Visits all rows as of the start of the call, except the row that belongs to the journal.
    pub(crate) fn dump<E: From<EngineError>>(
        &self,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        // A cursor sees the state at its creation, and publications are atomic, so the rows are those of one commit.
        let mut cursor = self.layer.cursor(None);
        let journal = schema::journal();
        cursor.seek(&[]);
        while let Some((key, row)) = cursor.item() {
            if *key != *journal {
                visit(key, row)?;
            }
            cursor.next();
        }
        Ok(cursor.finish()?)
    }

    /// Publishes changes and removes a range, in one batch. The caller excludes concurrent writes.
    pub(crate) fn write(
        &self,
        changes: Changes,
        removed_range: Option<&KeyRange>,
    ) -> Result<(), EngineError> {
        let Some(state) = &self.journal else { return self.write_batch(changes, removed_range, None) };
        let record = journal::encode(&changes, removed_range);
        let bytes = record.len() as u64;
        // Ask first, so that no record is appended whose changes the layer would refuse.
        self.layer.prepare_write()?;
        state.cancel_failed_record()?;
        let number = state.append(record)?;
        if let Err(error) = self.write_batch(changes, removed_range, Some(number)) {
            state.to_cancel.store(number, Ordering::Release);
            return match state.cancel_failed_record() {
                Ok(()) => Err(error),
                Err(_) => Err(EngineError::Uncertain(error.to_string())),
            };
        }
        state.applied.store(number, Ordering::Release);
        let unflushed = state.unflushed_bytes.fetch_add(bytes, Ordering::AcqRel) + bytes;
        if (unflushed > UNFLUSHED_BYTES_MAX || self.layer.is_memory_full())
            && let Err(error) = self.checkpoint()
        {
            // The change is in the journal and in the tables, so the commit has succeeded. The next commit tries the checkpoint
            // again, and a journal that cannot be synced fails the next fsync.
            tracing::warn!(
                "the checkpoint of the metadata tables failed: {error}; the changes are in the journal, and the next commit tries it again"
            );
        }
        Ok(())
    }

    /// Writes changes to the layer. Changes that are in the journal are not written to the layer's own write-ahead log.
    fn write_batch(
        &self,
        mut changes: Changes,
        removed_range: Option<&KeyRange>,
        journal_number: Option<u64>,
    ) -> Result<(), EngineError> {
        #[cfg(test)]
        if let Some(error) = self.next_write_error.lock().ok().and_then(|mut next| next.take()) {
            return Err(error);
        }
        if let Some(number) = journal_number {
            changes.insert(schema::journal(), Some(encode_number(number)));
        }
        self.layer.write(changes, removed_range, journal_number.is_none())
    }

    /// Begins a table file.
    pub(crate) fn begin_table(&self) -> Result<NewTable<'_>, EngineError> {
        self.layer.begin_table()
    }

    /// Returns whether [`ingest`](Self::ingest) makes all earlier commits durable, too. Otherwise they must be durable before.
    pub(crate) fn makes_all_durable(&self) -> bool {
        !self.is_journaled() && self.layer.makes_all_durable()
    }

    /// Publishes table files, oldest first, and newer changes, all at once. They are durable when this returns.
    pub(crate) fn ingest(&self, tables: &[FinishedTable], changes: &Changes) -> Result<(), EngineError> {
        self.layer.ingest(tables, changes)
    }

    /// Begins to write the rows in memory to table files, unless it has begun. The caller excludes concurrent writes.
    pub(crate) fn begin_flush(&self) -> Result<(), EngineError> {
        if self.is_journaled() { self.checkpoint() } else { self.layer.begin_flush() }
    }

    /// Waits until the rows that [`begin_flush`](Self::begin_flush) found are in table files. Writes may run meanwhile.
    pub(crate) fn finish_flush(&self) -> Result<(), EngineError> {
        if self.is_journaled() { Ok(()) } else { self.layer.finish_flush() }
    }

    /// Cuts the layer's own log where a loss of power tore it; fails if the log is damaged.
    pub(crate) fn settle_log_end(&self, is_synced: Option<bool>) -> Result<(), EngineError> {
        self.layer.settle_log_end(is_synced)
    }

    /// Makes the rows durable that opening the layer has recovered from its write-ahead log.
    pub(crate) fn flush_recovered(&self) -> Result<(), EngineError> {
        self.layer.flush_recovered()
    }

    /// Makes all earlier writes durable across a loss of power.
    pub(crate) fn sync(&self) -> Result<(), EngineError> {
        match &self.journal {
            Some(state) => state.journal.sync().map_err(journal_error),
            None => self.layer.sync(),
        }
    }

    /// Returns the memory in use, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.layer.memory_bytes()
    }
}

impl JournalState {
    /// Appends a record and returns its number, which is never reused.
    fn append(&self, record: Vec<u8>) -> Result<u64, EngineError> {
        let number = self.newest.load(Ordering::Acquire) + 1;
        self.journal.append(number, record).map_err(journal_error)?;
        self.newest.store(number, Ordering::Release);
        Ok(number)
    }

    /// Cancels the record whose changes could not be written to the tables, if there is one, so that a replay skips it.
    fn cancel_failed_record(&self) -> Result<(), EngineError> {
        let failed = self.to_cancel.load(Ordering::Acquire);
        if failed != 0 {
            self.append(journal::encode_cancel(failed))?;
            self.to_cancel.store(0, Ordering::Release);
        }
        Ok(())
    }
}

/// Converts an error of the journal.
fn journal_error(error: io::Error) -> EngineError {
    io_error(io::Error::new(error.kind(), format!("the journal: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EngineOptions;
    use crate::engine_dir::EngineDir;
    use std::io::ErrorKind;
    use std::path::Path;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    /// A journal in memory with fault injection.
    #[derive(Debug, Default)]
    struct FaultyJournal {
        records: Mutex<Records>,
        /// Number of appends that still succeed; `None` if all succeed.
        appends_left: Mutex<Option<usize>>,
        syncs_fail: AtomicBool,
    }

    impl Journal for FaultyJournal {
        fn append(&self, number: u64, record: Vec<u8>) -> io::Result<()> {
            if let Some(left) = &mut *self.appends_left.lock().unwrap() {
                *left = left.checked_sub(1).ok_or(ErrorKind::StorageFull)?;
            }
            let mut records = self.records.lock().unwrap();
            assert!(records.last().is_none_or(|(last, _)| *last < number), "numbers must ascend");
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

    fn open(path: &Path, journal: &Arc<FaultyJournal>, records: Records) -> Tables {
        let dir = EngineDir::lock(path).unwrap();
        let mut tables = Tables::new(Layer::open(&dir, &EngineOptions::default(), true, true).unwrap());
        tables.replay_journal(journal.clone(), records, false).unwrap();
        tables
    }

    fn change(key: &str, value: &str) -> Changes {
        [(key.as_bytes().to_vec(), Some(value.as_bytes().to_vec()))].into()
    }

    fn value(tables: &Tables, key: &str) -> Option<Vec<u8>> {
        tables.get_stored(key.as_bytes()).unwrap().map(|row| row.to_vec())
    }

    /// Opens new tables from the journal's records only, as after a crash before any checkpoint.
    fn replayed(journal: &FaultyJournal) -> (tempfile::TempDir, Tables) {
        let folder = tempfile::tempdir().unwrap();
        let records = journal.records.lock().unwrap().clone();
        let tables = open(folder.path(), &Arc::default(), records);
        (folder, tables)
    }

    /// The journal had a record, the database refused the batch, and the commit failed with `Full`. The next commit reused the record's
    /// number, so that a replay after a crash applied both records: a create that had failed, and its retry with another inode
    /// number.
    #[test]
    fn a_commit_that_the_database_refused_is_not_replayed() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Arc::new(FaultyJournal::default());
        let tables = open(folder.path(), &journal, Vec::new());
        *tables.next_write_error.lock().unwrap() = Some(EngineError::Full("injected".into()));
        assert_eq!(tables.write(change("first", "5"), None), Err(EngineError::Full("injected".into())));
        tables.write(change("second", "6"), None).unwrap();

        let (_folder, replayed) = replayed(&journal);
        assert_eq!(value(&replayed, "first"), None);
        assert_eq!(value(&replayed, "second").unwrap(), b"6");
    }

    /// Records that were cancelled and then dropped do not count as a gap in the journal.
    #[test]
    fn a_checkpoint_after_a_failed_commit_leaves_no_gap() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Arc::new(FaultyJournal::default());
        let tables = open(folder.path(), &journal, Vec::new());
        *tables.next_write_error.lock().unwrap() = Some(EngineError::Full("injected".into()));
        tables.write(change("first", "5"), None).unwrap_err();
        tables.checkpoint().unwrap();
        tables.write(change("second", "6"), None).unwrap();
        drop(tables);
        let records = journal.records.lock().unwrap().clone();
        let again = open(folder.path(), &journal, records);
        assert_eq!((value(&again, "first"), value(&again, "second").unwrap()), (None, b"6".to_vec()));
    }

    /// If there is no space even for the cancellation, the outcome is uncertain, and no further commit is possible before the
    /// cancellation is in the journal.
    #[test]
    fn nothing_is_committed_before_a_failed_record_is_cancelled() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Arc::new(FaultyJournal::default());
        let tables = open(folder.path(), &journal, Vec::new());
        *tables.next_write_error.lock().unwrap() = Some(EngineError::Full("injected".into()));
        *journal.appends_left.lock().unwrap() = Some(1);
        let refused = tables.write(change("first", "5"), None);
        assert!(matches!(refused, Err(EngineError::Uncertain(_))), "{refused:?}");
        let refused = tables.write(change("second", "6"), None);
        assert!(matches!(refused, Err(EngineError::Full(_))), "{refused:?}");
        *journal.appends_left.lock().unwrap() = None;
        tables.write(change("third", "7"), None).unwrap();

        let (_folder, replayed) = replayed(&journal);
        assert_eq!((value(&replayed, "first"), value(&replayed, "second")), (None, None));
        assert_eq!(value(&replayed, "third").unwrap(), b"7");
    }

    /// The journal could not be synced during an automatic checkpoint. The commit that had caused the checkpoint failed with an error
    /// that means "nothing has changed", although its rows were visible, and the next commit reused its number.
    #[test]
    fn a_failing_checkpoint_does_not_fail_the_commit_that_caused_it() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Arc::new(FaultyJournal::default());
        let tables = open(folder.path(), &journal, Vec::new());
        journal.syncs_fail.store(true, Ordering::Release);
        let large = "x".repeat(UNFLUSHED_BYTES_MAX as usize);
        tables.write(change("large", &large), None).unwrap();
        assert_eq!(value(&tables, "large").unwrap().len(), large.len());
        assert!(tables.sync().is_err(), "an fsync fails");
    }
}
