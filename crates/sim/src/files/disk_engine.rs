//! A metadata engine on a disk that may lose what was not synced.
//!
//! Invariant: what is there after a loss is the first so many commits, and never less than what was synced.

use super::fault_injector::{Sky, Weather};
use meta::{
    BatchRecord, Commit, CommitError, Engine, EngineError, KeyRange, LogCap, LogError, LoggedOp,
    MemoryEngine, Reader, Rows, Seqno, SortedRun, Versioned,
};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::writeback::Writeback;

/// Tables on the disk, and the commits behind them, by number.
#[derive(Debug)]
pub(super) struct Platter {
    tables: MemoryEngine,
    up_to: u64,
    commits: Vec<(u64, Commit)>,
}

impl Platter {
    pub(super) fn empty() -> Self {
        let tables = MemoryEngine::new(LogCap { bytes_max: 0, tail_ops: 0 });
        Self { tables, up_to: 0, commits: Vec::new() }
    }

    /// How many commits may be lost.
    pub(super) fn unsynced(&self) -> usize {
        self.commits.len()
    }

    /// Loses all but the first commits that were not synced; these are on the disk.
    pub(super) fn keep(&mut self, commits: usize) -> Result<(), CommitError> {
        self.commits.truncate(commits);
        *self = Self { tables: self.read()?, up_to: self.next() - 1, commits: Vec::new() };
        Ok(())
    }

    /// Loses the commits whose numbers a journal does not have.
    pub(super) fn keep_noted(&mut self, numbers: &[u64]) {
        self.commits.retain(|(number, _)| numbers.contains(number));
    }

    /// The newest tables.
    fn read(&self) -> Result<MemoryEngine, CommitError> {
        let tables = self.tables.fork();
        for (_, commit) in &self.commits {
            tables.commit(commit.clone())?;
        }
        Ok(tables)
    }

    fn next(&self) -> u64 {
        self.commits.last().map_or(self.up_to, |(number, _)| *number) + 1
    }
}

/// The engine of one life over a disk.
#[derive(Debug)]
pub(super) struct DiskEngine {
    tables: MemoryEngine,
    disk: Arc<Mutex<Platter>>,
    weather: Arc<Weather>,
    /// Where commits are noted, if data waits there too.
    journal: Option<Arc<Writeback>>,
}

impl DiskEngine {
    pub(super) fn open(
        disk: Arc<Mutex<Platter>>,
        weather: Arc<Weather>,
        journal: Option<Arc<Writeback>>,
    ) -> Result<Self, CommitError> {
        let tables = disk.lock().unwrap_or_else(PoisonError::into_inner).read()?;
        Ok(Self { tables, disk, weather, journal })
    }

    fn disk(&self) -> MutexGuard<'_, Platter> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alive(&self) -> Result<(), EngineError> {
        match self.weather.has_crashed() {
            true => Err(EngineError::Unavailable("the machine has crashed".into())),
            false => Ok(()),
        }
    }

    fn have_room(&self) -> Result<(), EngineError> {
        match self.weather.disk_fails() {
            true => Err(EngineError::Unavailable("the disk is full on demand".into())),
            false => Ok(()),
        }
    }

    fn strike(&self, what: &str) -> CommitError {
        self.weather.strike(what);
        EngineError::Uncertain("the machine crashed".into()).into()
    }

    fn write(&self, commit: Commit) -> Result<Seqno, CommitError> {
        let mut disk = self.disk();
        let seqno = self.tables.commit(commit.clone())?;
        if commit.is_check() {
            return Ok(seqno);
        }
        self.weather.tell(told(&commit));
        let number = disk.next();
        if let Some(journal) = &self.journal {
            journal.append_note(number, number.to_le_bytes().to_vec().into()).map_err(failed)?;
        }
        disk.commits.push((number, commit));
        Ok(seqno)
    }

    /// All commits are in tables on the disk, and in no journal any more.
    pub(super) fn checkpoint(&self) -> Result<(), EngineError> {
        let mut disk = self.disk();
        let up_to = disk.next() - 1;
        if let Some(journal) = &self.journal {
            journal.sync_now().map_err(failed)?;
            journal.forget_notes(up_to).map_err(failed)?;
        }
        *disk = Platter { tables: self.tables.fork(), up_to, commits: Vec::new() };
        Ok(())
    }
}

/// So much of an op is told, in bytes.
const TOLD_BYTES: usize = 120;

fn told(commit: &Commit) -> String {
    let ops = commit.ops.iter().map(|(_, op)| {
        let text = format!("{op:?}");
        text.chars().take(TOLD_BYTES).collect()
    });
    format!("    commit {}", ops.collect::<Vec<String>>().join("; "))
}

fn failed(error: std::io::Error) -> EngineError {
    EngineError::Unavailable(error.to_string())
}

impl Reader for DiskEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        self.alive()?;
        self.tables.get(key)
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        self.alive()?;
        self.tables.multi_get(keys)
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        self.alive()?;
        self.tables.scan(from, to, limit)
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        self.alive()?;
        self.tables.last(range)
    }
}

impl Engine for DiskEngine {
    fn snapshot(&self) -> Arc<dyn Reader> {
        self.tables.snapshot()
    }

    fn commit(&self, commit: Commit) -> Result<Seqno, CommitError> {
        self.alive()?;
        self.have_room()?;
        match self.weather.sky() {
            Sky::Clear => self.write(commit),
            Sky::CrashBefore => Err(self.strike("a commit, before it")),
            Sky::CrashAfter => {
                self.write(commit)?;
                Err(self.strike("a commit, after it"))
            }
        }
    }

    fn log_after(&self, cursor: Seqno, limit: usize) -> Result<Vec<LoggedOp>, LogError> {
        self.tables.log_after(cursor, limit)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.alive()?;
        self.have_room()?;
        match &self.journal {
            Some(journal) => journal.sync_now().map_err(failed),
            None => self.checkpoint(),
        }
    }

    fn ingest(&self, run: SortedRun, log: BatchRecord) -> Result<Seqno, CommitError> {
        self.tables.ingest(run, log)
    }

    fn register(&self, consumer: &str, at: Seqno) -> Result<(), LogError> {
        self.tables.register(consumer, at)
    }

    fn cursor(&self, consumer: &str) -> Result<Seqno, LogError> {
        self.tables.cursor(consumer)
    }

    fn advance(&self, consumer: &str, to: Seqno) -> Result<(), LogError> {
        self.tables.advance(consumer, to)
    }

    fn forget_consumer(&self, consumer: &str) -> Result<(), LogError> {
        self.tables.forget_consumer(consumer)
    }

    fn head(&self) -> Seqno {
        self.tables.head()
    }

    fn memory_bytes(&self) -> u64 {
        self.tables.memory_bytes()
    }
}
