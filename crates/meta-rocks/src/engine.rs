//! The engine: opening, and the seam.

use crate::applier::Applier;
use crate::engine_dir::{Files, Mark};
use crate::error::OpenError;
use crate::journal::{Journal, Records};
use crate::options::RocksOptions;
use crate::snapshot::Snapshot;
use crate::sync::{Progress, Syncer};
use crate::tables::{Changes, Tables};
use meta::codec::{DecodeError, HeadRecord, decode_head, decode_log_record, decode_number, encode_head};
use meta::{
    BatchRecord, Commit, CommitError, Engine, EngineError, KeyRange, LogCap, LogError, LogSpan, LoggedOp,
    Reader, Rows, Seqno, SortedRun, Versioned, schema,
};
use std::fmt;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

/// Records as they are stored: keys and rows.
pub type DumpedRecords = Vec<(Vec<u8>, Vec<u8>)>;

/// An [`Engine`] in a directory of its own.
pub struct RocksEngine {
    applier: Applier,
    tables: Arc<Tables>,
    progress: Arc<Progress>,
    /// Given back last.
    files: Files,
}

impl RocksEngine {
    /// Opens the engine in a directory, or makes one where there is none.
    pub fn open(path: &Path, options: RocksOptions) -> Result<Self, OpenError> {
        Self::open_with(path, options, None)
    }

    /// The same with a journal, whose records so far are given.
    pub fn open_journaled(
        path: &Path,
        options: RocksOptions,
        journal: Arc<dyn Journal>,
        records: Records,
    ) -> Result<Self, OpenError> {
        Self::open_with(path, options, Some((journal, records)))
    }

    /// Brings all tables to the disk, so that no record of the journal is needed any more.
    pub fn checkpoint(&self) -> Result<(), EngineError> {
        self.applier.checkpoint()
    }

    /// Visits every record of one commit in ascending order of keys, those too that engines keep to themselves. Commits go on
    /// meanwhile and are not seen. [`RocksEngine::restore`] takes what is visited.
    pub fn dump<E: From<EngineError>>(
        &self,
        visit: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.tables.dump(visit)
    }

    /// Makes an engine, in a directory that has none, of the records of a [dump](RocksEngine::dump). It exists when this returns;
    /// what a failure leaves is no engine and must be removed.
    pub fn restore<E: From<OpenError>>(
        path: &Path,
        options: RocksOptions,
        mut records: impl FnMut() -> Result<Option<DumpedRecords>, E>,
    ) -> Result<(), E> {
        let files = Files::take(path)?;
        if files.mark()?.is_some() {
            return Err(damaged("there is an engine already".into()).into());
        }
        let tables = open_tables(&files, options, true, false)?;
        while let Some(records) = records()? {
            let changes: Changes = records.into_iter().map(|(key, row)| (key, Some(row))).collect();
            tables.write(&changes, None).map_err(OpenError::from)?;
        }
        let record = head_record(&tables, &files)?;
        let record = record.ok_or_else(|| damaged("the record of the newest commit is missing".into()))?;
        tables.sync().map_err(OpenError::from)?;
        files.make_mark(record.head)?;
        Ok(())
    }

    fn open_with(
        path: &Path,
        options: RocksOptions,
        journal: Option<(Arc<dyn Journal>, Records)>,
    ) -> Result<Self, OpenError> {
        let files = Files::take(path)?;
        let mark = files.mark()?;
        let mut tables = open_tables(&files, options, mark.is_none(), journal.is_some())?;
        if let Some((journal, records)) = journal {
            tables.journal(journal, records, options.ends_at_gap)?;
        }
        let record = head_record(&tables, &files)?;
        let (mark, record) = match (mark, record) {
            (Some(mark), Some(record)) => (kept(mark, record)?, record),
            (Some(_), None) => return Err(damaged("the record of the newest commit is missing".into())),
            (None, record) => make(&tables, &files, record)?,
        };
        let span = log_span(&tables, options.log_cap, record)?;
        let tables = Arc::new(tables);
        let progress = Arc::new(Progress::new(record.head, mark));
        let syncer = Syncer::start(tables.clone(), progress.clone(), options.sync_interval)
            .map_err(|error| OpenError::Io { path: path.to_owned(), error })?;
        let applier = Applier::new(tables.clone(), progress.clone(), syncer, span);
        Ok(Self { applier, tables, progress, files })
    }
}

fn open_tables(
    files: &Files,
    options: RocksOptions,
    is_new: bool,
    is_journaled: bool,
) -> Result<Tables, OpenError> {
    let cache = options.cache();
    let mut rocks = options.rocks(&cache, is_journaled);
    rocks.create_if_missing(is_new);
    Ok(Tables::open(&files.tables(), rocks, cache, files.run())?)
}

fn head_record(tables: &Tables, files: &Files) -> Result<Option<HeadRecord>, OpenError> {
    let Some(record) = tables.stored(&schema::head())? else { return Ok(None) };
    match decode_head(&record) {
        Ok(record) => Ok(Some(record)),
        Err(found @ DecodeError::Version { .. }) => {
            Err(OpenError::Newer { path: files.root().to_owned(), found })
        }
        Err(error) => Err(damaged(error.to_string())),
    }
}

/// What was synced is there. All that is there now is on the disk, since opening has written it anew.
fn kept(mark: Mark, record: HeadRecord) -> Result<Mark, OpenError> {
    let synced = mark.get()?;
    if record.head < synced {
        let (found, synced) = (record.head.0, synced.0);
        return Err(damaged(format!("commits up to {synced} were synced, those after {found} are lost")));
    }
    mark.set(record.head).map_err(|error| EngineError::Unavailable(error.to_string()))?;
    Ok(mark)
}

/// Completes an engine that is new, or whose making was interrupted.
fn make(tables: &Tables, files: &Files, record: Option<HeadRecord>) -> Result<(Mark, HeadRecord), OpenError> {
    let record = record.unwrap_or(HeadRecord { head: Seqno(0), cut: Seqno(0) });
    tables.write(&Changes::from([(schema::head(), Some(encode_head(record)))]), None)?;
    tables.sync()?;
    Ok((files.make_mark(record.head)?, record))
}

/// The log and its consumers as the tables have them.
fn log_span(tables: &Tables, cap: LogCap, record: HeadRecord) -> Result<LogSpan, EngineError> {
    let mut span = LogSpan::new(cap, record.cut);
    tables.each_stored(&schema::consumers(), |key, value| {
        span.restore(schema::consumer_of(key)?, Seqno(decode_number(value)?));
        Ok(true)
    })?;
    let mut commit = (Seqno(0), 0, 0);
    tables.each_stored(&schema::log_records(record.cut, record.head), |key, value| {
        let seqno = schema::seqno_of(key)?;
        if seqno != commit.0 {
            span.append(commit.0, commit.1, commit.2);
            commit = (seqno, 0, 0);
        }
        commit.1 += 1;
        commit.2 += (key.len() + value.len()) as u64;
        Ok(true)
    })?;
    span.append(commit.0, commit.1, commit.2);
    Ok(span)
}

fn damaged(what: String) -> OpenError {
    OpenError::Engine(EngineError::Corrupt(what))
}

impl fmt::Debug for RocksEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksEngine")
            .field("path", &self.files.root())
            .field("head", &self.progress.head())
            .finish_non_exhaustive()
    }
}

impl Reader for RocksEngine {
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

impl Engine for RocksEngine {
    fn snapshot(&self) -> Arc<dyn Reader> {
        Arc::new(Snapshot::of(self.tables.clone()))
    }

    fn commit(&self, commit: Commit) -> Result<Seqno, CommitError> {
        self.applier.commit(commit)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.progress.sync(&self.tables)
    }

    fn log_after(&self, cursor: Seqno, limit: usize) -> Result<Vec<LoggedOp>, LogError> {
        let head = self.progress.head();
        let mut ops: Vec<LoggedOp> = Vec::new();
        self.tables.each_stored(&schema::log_records(cursor, head), |key, record| {
            let seqno = schema::seqno_of(key)?;
            if ops.len() >= limit && ops.last().is_some_and(|last| last.seqno != seqno) {
                return Ok(false);
            }
            let (ctx, op) = decode_log_record(record)?;
            ops.push(LoggedOp { seqno, ctx, op });
            Ok(true)
        })?;
        // Asked for afterwards: what was cut while the log was read may be missing in it.
        if cursor < self.applier.cut() { Err(LogError::Lagged { head }) } else { Ok(ops) }
    }

    fn ingest(&self, run: SortedRun, log: BatchRecord) -> Result<Seqno, CommitError> {
        self.applier.ingest(run, log)
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
