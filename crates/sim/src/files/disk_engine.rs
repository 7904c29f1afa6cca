//! A metadata engine on a disk that may lose unsynced commits.
//!
//! Invariant: a crash leaves a prefix of the commits that contains all synced ones.

use super::fault_injector::{CrashPoint, FaultInjector};
use meta::{
    Commit, CommitError, Engine, EngineError, KeyRange, LogCap, LogError, LoggedOp, MemoryEngine, Reader,
    Rows, RunBuilder, Seqno, Versioned,
};
use staging::writeback::Writeback;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tables on the disk, and the numbered commits after them.
#[derive(Debug)]
pub(super) struct DiskState {
    tables: MemoryEngine,
    checkpointed: u64,
    commits: Vec<(u64, Commit)>,
}

impl DiskState {
    pub(super) fn empty() -> Self {
        let tables = MemoryEngine::new(LogCap { bytes_max: 1 << 20, tail_ops: 256, run_bytes_max: 0 });
        Self { tables, checkpointed: 0, commits: Vec::new() }
    }

    /// Returns the number of commits that a power loss may drop.
    pub(super) fn unsynced(&self) -> usize {
        self.commits.len()
    }

    /// Drops the unsynced commits after the first `commits`, and makes those durable.
    pub(super) fn keep_unsynced(&mut self, commits: usize) -> Result<(), CommitError> {
        self.commits.truncate(commits);
        *self = Self { tables: self.replay()?, checkpointed: self.next_number() - 1, commits: Vec::new() };
        Ok(())
    }

    /// Drops the commits whose numbers are not in the journal.
    pub(super) fn keep_journaled(&mut self, numbers: &[u64]) {
        self.commits.retain(|(number, _)| numbers.contains(number));
    }

    /// Returns the tables with all commits applied.
    fn replay(&self) -> Result<MemoryEngine, CommitError> {
        let tables = self.tables.fork();
        for (_, commit) in &self.commits {
            tables.commit(commit.clone())?;
        }
        Ok(tables)
    }

    fn next_number(&self) -> u64 {
        self.commits.last().map_or(self.checkpointed, |(number, _)| *number) + 1
    }
}

/// The engine of one session on a disk.
#[derive(Debug)]
pub(super) struct DiskEngine {
    tables: MemoryEngine,
    disk: Arc<Mutex<DiskState>>,
    injector: Arc<FaultInjector>,
    /// The journal for commits, if data waits in one too (the write-back log).
    journal: Option<Arc<Writeback>>,
}

impl DiskEngine {
    pub(super) fn open(
        disk: Arc<Mutex<DiskState>>,
        injector: Arc<FaultInjector>,
        journal: Option<Arc<Writeback>>,
    ) -> Result<Self, CommitError> {
        let tables = disk.lock().unwrap_or_else(PoisonError::into_inner).replay()?;
        Ok(Self { tables, disk, injector, journal })
    }

    fn disk(&self) -> MutexGuard<'_, DiskState> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_alive(&self) -> Result<(), EngineError> {
        match self.injector.has_crashed() {
            true => Err(EngineError::Unavailable("the machine has crashed".into())),
            false => Ok(()),
        }
    }

    fn check_space(&self) -> Result<(), EngineError> {
        match self.injector.draw_disk_failure() {
            true => Err(EngineError::Unavailable("the disk is full (injected)".into())),
            false => Ok(()),
        }
    }

    fn crash(&self, what: &str) -> CommitError {
        self.injector.crash(what);
        EngineError::Uncertain("the machine crashed".into()).into()
    }

    fn write(&self, commit: Commit) -> Result<Seqno, CommitError> {
        let mut disk = self.disk();
        let seqno = self.tables.commit(commit.clone())?;
        if commit.is_check() {
            return Ok(seqno);
        }
        self.injector.trace_line(describe(&commit));
        let number = disk.next_number();
        if let Some(journal) = &self.journal {
            journal.append_note(number, number.to_le_bytes().to_vec().into()).map_err(unavailable)?;
        }
        disk.commits.push((number, commit));
        Ok(seqno)
    }

    /// Writes all commits to tables on the disk, and removes them from the journal.
    pub(super) fn checkpoint(&self) -> Result<(), EngineError> {
        let mut disk = self.disk();
        let checkpointed = disk.next_number() - 1;
        if let Some(journal) = &self.journal {
            journal.sync_now().map_err(unavailable)?;
            journal.forget_notes(checkpointed).map_err(unavailable)?;
        }
        *disk = DiskState { tables: self.tables.fork(), checkpointed, commits: Vec::new() };
        Ok(())
    }
}

/// Maximum length of an op in the trace, in characters.
const TRACED_OP_CHARS: usize = 400;

fn describe(commit: &Commit) -> String {
    let ops = commit.ops.iter().map(|record| {
        let text = format!("{:?}", record.op);
        text.chars().take(TRACED_OP_CHARS).collect()
    });
    format!("    commit {}", ops.collect::<Vec<String>>().join("; "))
}

fn unavailable(error: std::io::Error) -> EngineError {
    EngineError::Unavailable(error.to_string())
}

impl Reader for DiskEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        self.check_alive()?;
        self.tables.get(key)
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        self.check_alive()?;
        self.tables.multi_get(keys)
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        self.check_alive()?;
        self.tables.scan(from, to, limit)
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        self.check_alive()?;
        self.tables.last(range)
    }
}

impl Engine for DiskEngine {
    fn snapshot_with_head(&self) -> Result<(Arc<dyn Reader>, Seqno), EngineError> {
        self.tables.snapshot_with_head()
    }

    fn commit(&self, commit: Commit) -> Result<Seqno, CommitError> {
        self.check_alive()?;
        self.check_space()?;
        match self.injector.next_crash_point() {
            CrashPoint::NoCrash => self.write(commit),
            CrashPoint::Before => Err(self.crash("a commit, before its effect")),
            CrashPoint::After => {
                self.write(commit)?;
                Err(self.crash("a commit, after its effect"))
            }
        }
    }

    fn log_after(&self, cursor: Seqno, limit: usize) -> Result<Vec<LoggedOp>, LogError> {
        self.tables.log_after(cursor, limit)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.check_alive()?;
        self.check_space()?;
        match &self.journal {
            Some(journal) => journal.sync_now().map_err(unavailable),
            None => self.checkpoint(),
        }
    }

    fn begin_run(&self) -> Result<Box<dyn RunBuilder<'_> + '_>, EngineError> {
        self.tables.begin_run()
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
