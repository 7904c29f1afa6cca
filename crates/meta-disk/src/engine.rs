//! [`DiskEngine`]: opening, dump and restore, and the implementation of [`Engine`].

use crate::applier::{Applier, LoggedRuns};
use crate::engine_dir::{EngineDir, SyncedMark};
use crate::error::OpenError;
use crate::journal::{Journal, Records};
use crate::layer::Layer;
use crate::options::EngineOptions;
use crate::row::Changes;
use crate::run::NewRun;
use crate::sync::{Progress, Syncer};
use crate::tables::Tables;
use meta::codec::{
    DecodeError, HeadRecord, decode_head, decode_log_page, decode_log_record, decode_logged_run,
    decode_number, encode_head,
};
use meta::{
    Commit, CommitError, Engine, EngineError, KeyRange, LogCap, LogError, LogSpan, LoggedOp, LoggedRun,
    OpRecord, Reader, Rows, RunBuilder, Seqno, Versioned, schema,
};
use std::fmt;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

/// Records in their stored form: keys and rows.
pub type DumpedRecords = Vec<(Vec<u8>, Vec<u8>)>;

/// A persistent [`Engine`] in a directory of its own.
pub struct DiskEngine {
    applier: Applier,
    tables: Arc<Tables>,
    progress: Arc<Progress>,
    /// The last field: unlocked after the database is closed.
    dir: EngineDir,
}

impl DiskEngine {
    /// Opens the engine in a directory, or creates one if there is none.
    pub fn open(path: &Path, options: EngineOptions) -> Result<Self, OpenError> {
        Self::open_with(path, options, None)
    }

    /// Opens or creates an engine with a journal; `records` are the journal's current records.
    pub fn open_journaled(
        path: &Path,
        options: EngineOptions,
        journal: Arc<dyn Journal>,
        records: Records,
    ) -> Result<Self, OpenError> {
        Self::open_with(path, options, Some((journal, records)))
    }

    /// Makes all tables durable, so that the journal's records are no longer needed.
    pub fn checkpoint(&self) -> Result<(), EngineError> {
        self.applier.checkpoint()
    }

    /// Visits all records as of one commit, in ascending order of keys and including the engine's own records. Concurrent commits are
    /// possible and not visited. [`DiskEngine::restore`] accepts the visited records.
    pub fn dump<E: From<EngineError>>(
        &self,
        visit: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.tables.dump(visit)
    }

    /// Creates an engine from the records of a [dump](DiskEngine::dump), in a directory that has none. The engine is durable when this
    /// returns. After a failure the directory contains no engine, and the caller must remove it.
    pub fn restore<E: From<OpenError>>(
        path: &Path,
        options: EngineOptions,
        mut records: impl FnMut() -> Result<Option<DumpedRecords>, E>,
    ) -> Result<(), E> {
        let dir = EngineDir::lock(path)?;
        if dir.synced_mark()?.is_some() {
            return Err(corrupt("the directory already contains an engine".into()).into());
        }
        let tables = Tables::new(Layer::open(&dir, &options, true, false)?);
        while let Some(records) = records()? {
            let changes: Changes = records.into_iter().map(|(key, row)| (key, Some(row))).collect();
            tables.write(changes, None).map_err(OpenError::from)?;
        }
        let record = head_record(&tables, &dir)?;
        let record = record.ok_or_else(|| corrupt("the head record is missing".into()))?;
        tables.sync().map_err(OpenError::from)?;
        dir.create_synced_mark(record.head)?;
        Ok(())
    }

    fn open_with(
        path: &Path,
        options: EngineOptions,
        journal: Option<(Arc<dyn Journal>, Records)>,
    ) -> Result<Self, OpenError> {
        let dir = EngineDir::lock(path)?;
        let mark = dir.synced_mark()?;
        let mut tables = Tables::new(Layer::open(&dir, &options, mark.is_none(), journal.is_some())?);
        let recovered = head_record(&tables, &dir)?;
        require_synced(mark.as_ref(), recovered)?;
        // No synced commit is missing, unless the head record itself is.
        tables.settle_log_end(mark.as_ref().map(|_| recovered.is_none()))?;
        // From here on the recovered rows are durable, and the log that they came from is gone.
        tables.flush_recovered()?;
        if let Some((journal, records)) = journal {
            tables.replay_journal(journal, records, options.ends_at_gap)?;
        }
        let record = head_record(&tables, &dir)?;
        let (mark, record) = match (mark, record) {
            (Some(mark), Some(record)) => {
                require_synced(Some(&mark), Some(record))?;
                (raise_synced_mark(mark, record)?, record)
            }
            (Some(_), None) => return Err(corrupt("the head record is missing".into())),
            (None, record) => initialize(&tables, &dir, record)?,
        };
        let log = read_log(&tables, options.log_cap, record)?;
        let tables = Arc::new(tables);
        let progress = Arc::new(Progress::new(record.head, mark));
        let syncer = Syncer::start(tables.clone(), progress.clone(), options.sync_interval)
            .map_err(|error| OpenError::Io { path: path.to_owned(), error })?;
        let applier = Applier::new(tables.clone(), progress.clone(), syncer, log);
        Ok(Self { applier, tables, progress, dir })
    }
}

fn head_record(tables: &Tables, dir: &EngineDir) -> Result<Option<HeadRecord>, OpenError> {
    let Some(record) = tables.get_stored(&schema::head())? else { return Ok(None) };
    match decode_head(&record) {
        Ok(record) => Ok(Some(record)),
        Err(found @ DecodeError::Version { .. }) => {
            Err(OpenError::Newer { path: dir.root().to_owned(), found })
        }
        Err(error) => Err(corrupt(error.to_string())),
    }
}

/// Fails if synced commits are lost.
fn require_synced(mark: Option<&SyncedMark>, record: Option<HeadRecord>) -> Result<(), OpenError> {
    let (Some(mark), Some(record)) = (mark, record) else { return Ok(()) };
    let (found, synced) = (record.head.0, mark.get()?.0);
    if found < synced {
        return Err(corrupt(format!(
            "the synced commits after number {found} are lost; the last one was number {synced}"
        )));
    }
    Ok(())
}

/// Raises the mark to the head. All commits in the tables are durable now, because opening has written them to table files.
fn raise_synced_mark(mark: SyncedMark, record: HeadRecord) -> Result<SyncedMark, OpenError> {
    mark.set(record.head).map_err(|error| EngineError::Unavailable(error.to_string()))?;
    Ok(mark)
}

/// Initialises a new engine, or one whose initialisation was interrupted.
fn initialize(
    tables: &Tables,
    dir: &EngineDir,
    record: Option<HeadRecord>,
) -> Result<(SyncedMark, HeadRecord), OpenError> {
    let record = record.unwrap_or(HeadRecord { head: Seqno(0), cut: Seqno(0), has_runs: false });
    tables.write(Changes::from([(schema::head(), Some(encode_head(record)))]), None)?;
    tables.sync()?;
    Ok((dir.create_synced_mark(record.head)?, record))
}

/// Reads the extent of the log, its consumers and its runs from the tables.
fn read_log(tables: &Tables, cap: LogCap, record: HeadRecord) -> Result<(LogSpan, LoggedRuns), EngineError> {
    let mut span = LogSpan::new(cap, record.cut);
    tables.for_each_stored(&schema::consumers(), |key, value| {
        span.restore(schema::consumer_of(key)?, Seqno(decode_number(value)?));
        Ok(true)
    })?;
    let mut runs = LoggedRuns::new();
    let mut commit = (Seqno(0), 0, 0);
    // Records up to the cut may be there too, and the pages of such runs are still to be removed.
    tables.for_each_stored(&schema::log_records(Seqno(0), record.head), |key, value| {
        let seqno = schema::seqno_of(key)?;
        let run = schema::is_logged_run(key).then(|| decode_logged_run(value)).transpose()?;
        runs.extend(run.map(|run| (seqno, run)));
        if seqno <= record.cut {
            return Ok(true);
        }
        if seqno != commit.0 {
            span.append(commit.0, commit.1, commit.2);
            commit = (seqno, 0, 0);
        }
        if let Some(run) = run {
            span.append_run(seqno, &run);
        } else {
            commit.1 += 1;
            commit.2 += (key.len() + value.len()) as u64;
        }
        Ok(true)
    })?;
    span.append(commit.0, commit.1, commit.2);
    Ok((span, runs))
}

fn corrupt(what: String) -> OpenError {
    OpenError::Engine(EngineError::Corrupt(what))
}

impl fmt::Debug for DiskEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskEngine")
            .field("path", &self.dir.root())
            .field("head", &self.progress.head())
            .finish_non_exhaustive()
    }
}

impl Reader for DiskEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        self.tables.get(key)
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        self.tables.multi_get(keys)
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        self.tables.scan(from, to, limit)
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        self.tables.last(range)
    }
}

impl Engine for DiskEngine {
    fn snapshot(&self) -> Result<Arc<dyn Reader>, EngineError> {
        Ok(Arc::new(self.tables.snapshot()))
    }

    fn snapshot_with_head(&self) -> Result<(Arc<dyn Reader>, Seqno), EngineError> {
        let snapshot = self.tables.snapshot();
        let head = snapshot.head()?;
        Ok((Arc::new(snapshot), head))
    }

    fn commit(&self, commit: Commit) -> Result<Seqno, CommitError> {
        self.applier.commit(commit)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.progress.sync(&self.tables)
    }

    fn failure(&self) -> Option<EngineError> {
        self.progress.check_running().err()
    }

    fn log_after(&self, cursor: Seqno, limit: usize) -> Result<Vec<LoggedOp>, LogError> {
        let head = self.progress.head();
        let mut page = LogPage { cursor, limit, ops: Vec::new() };
        let outcome = self.tables.for_each_stored(&schema::log_records(cursor, head), |key, record| {
            let seqno = schema::seqno_of(key)?;
            match schema::is_logged_run(key) {
                true => page.add_run(&self.tables, seqno, &decode_logged_run(record)?),
                false => Ok(page.add(seqno, || Ok(vec![decode_log_record(record)?]))?),
            }
        });
        // The cut is read last, since records that were cut off during the scan may be missing in the page.
        if cursor < self.applier.cut() {
            return Err(LogError::Lagged { head });
        }
        outcome?;
        Ok(page.ops)
    }

    fn begin_run(&self) -> Result<Box<dyn RunBuilder<'_> + '_>, EngineError> {
        Ok(Box::new(NewRun::begin(&self.applier)?))
    }

    fn register(&self, consumer: &str, at: Seqno) -> Result<(), LogError> {
        self.applier.register(consumer, at)
    }

    fn cursor(&self, consumer: &str) -> Result<Seqno, LogError> {
        self.applier.cursor(consumer)
    }

    fn advance(&self, consumer: &str, to: Seqno) -> Result<(), LogError> {
        self.applier.advance(consumer, to)
    }

    fn forget_consumer(&self, consumer: &str) -> Result<(), LogError> {
        self.applier.forget_consumer(consumer)
    }

    fn head(&self) -> Seqno {
        self.progress.head()
    }

    fn memory_bytes(&self) -> u64 {
        self.tables.memory_bytes()
    }
}

/// Ops read from the log, of whole commits.
struct LogPage {
    cursor: Seqno,
    limit: usize,
    ops: Vec<LoggedOp>,
}

impl LogPage {
    /// Adds ops of a commit. Returns whether there is space for more; if there was none, nothing is added.
    fn add(
        &mut self,
        seqno: Seqno,
        read: impl FnOnce() -> Result<Vec<OpRecord>, EngineError>,
    ) -> Result<bool, EngineError> {
        let is_full = self.ops.len() >= self.limit && self.ops.last().is_some_and(|last| last.seqno != seqno);
        if !is_full {
            self.ops.extend(read()?.into_iter().map(|record| LoggedOp::new(seqno, record)));
        }
        Ok(!is_full)
    }

    /// Adds pages of a run's ops as far as there is space, and returns whether there is space for more.
    fn add_run(&mut self, tables: &Tables, commit: Seqno, run: &LoggedRun) -> Result<bool, EngineError> {
        for page in run.first_page_after(self.cursor, commit)..run.pages {
            let read = || {
                let stored = tables.get_stored(&schema::run_log_page(run.version, page))?;
                let missing = || EngineError::Corrupt("ops of a run are missing in the log".into());
                Ok(decode_log_page(&stored.ok_or_else(missing)?)?)
            };
            if !self.add(run.seqno_of_page(commit, page), read)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
