//! The in-memory engine: the reference model for other engines. Tests use it; mounts keep their metadata in a
//! persistent engine.
//!
//! Owns one ordered table and the log, behind one lock that each call takes once and briefly. Is not durable.
//!
//! Invariants: a version is the seqno of the commit that wrote the record; the log is complete after `cut`;
//! `cut <= ` the cursor of every consumer that has not lagged `<= head`.

mod log;
mod run;
mod table;

use crate::engine::{Commit, Condition, Engine, LogCap, LoggedOp, Reader};
use crate::error::{CommitError, EngineError, LogError};
use crate::record::{KeyRange, Rows, Seqno, Versioned};
use crate::run::RunBuilder;
use log::Log;
use run::MemoryRun;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use table::Table;

/// An [`Engine`] in memory, whose content is lost with the process.
#[derive(Debug)]
pub struct MemoryEngine {
    state: RwLock<State>,
}

#[derive(Debug, Clone)]
struct State {
    table: Table,
    log: Log,
    head: Seqno,
}

impl MemoryEngine {
    /// Creates an empty engine, which keeps as much log as `cap` allows.
    pub fn new(cap: LogCap) -> Self {
        Self { state: RwLock::new(State { table: Table::default(), log: Log::new(cap), head: Seqno(0) }) }
    }

    /// Returns a copy of the current state, including log and consumers.
    pub fn fork(&self) -> Self {
        Self { state: RwLock::new(self.read().clone()) }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryEngine {
    fn default() -> Self {
        Self::new(LogCap::default())
    }
}

impl Reader for MemoryEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        Ok(self.read().table.get(key))
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        let state = self.read();
        Ok(keys.iter().map(|key| state.table.get(key)).collect())
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        Ok(self.read().table.scan(from, to, limit))
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        Ok(self.read().table.last(range))
    }
}

/// The table as it was after one commit.
#[derive(Debug)]
struct Snapshot(Table);

impl Reader for Snapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        Ok(self.0.get(key))
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        Ok(keys.iter().map(|key| self.0.get(key)).collect())
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        Ok(self.0.scan(from, to, limit))
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        Ok(self.0.last(range))
    }
}

impl Engine for MemoryEngine {
    fn snapshot_with_head(&self) -> Result<(Arc<dyn Reader>, Seqno), EngineError> {
        let state = self.read();
        Ok((Arc::new(Snapshot(state.table.clone())), state.head))
    }

    fn commit(&self, commit: Commit) -> Result<Seqno, CommitError> {
        self.write().commit(commit)
    }

    fn log_after(&self, cursor: Seqno, limit: usize) -> Result<Vec<LoggedOp>, LogError> {
        let state = self.read();
        state.log.read_after(cursor, limit, state.head)
    }

    fn sync(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn begin_run(&self) -> Result<Box<dyn RunBuilder<'_> + '_>, EngineError> {
        let mut state = self.write();
        state.head.0 += 1;
        Ok(Box::new(MemoryRun::new(self, state.head)))
    }

    fn register(&self, consumer: &str, at: Seqno) -> Result<(), LogError> {
        let mut state = self.write();
        let head = state.head;
        state.log.register(consumer, at, head)
    }

    fn cursor(&self, consumer: &str) -> Result<Seqno, LogError> {
        let state = self.read();
        state.log.cursor(consumer, state.head)
    }

    fn advance(&self, consumer: &str, to: Seqno) -> Result<(), LogError> {
        let mut state = self.write();
        let head = state.head;
        state.log.advance(consumer, to, head)
    }

    fn forget_consumer(&self, consumer: &str) -> Result<(), LogError> {
        self.write().log.forget(consumer);
        Ok(())
    }

    fn head(&self) -> Seqno {
        self.read().head
    }

    fn memory_bytes(&self) -> u64 {
        let state = self.read();
        state.table.memory_bytes() + state.log.memory_bytes()
    }
}

impl State {
    fn commit(&mut self, commit: Commit) -> Result<Seqno, CommitError> {
        self.check_conditions(&commit)?;
        if commit.is_check() {
            return Ok(self.head);
        }
        let merged = self.apply_merges(&commit)?;
        let seqno = Seqno(self.head.0 + 1);
        for (key, value) in commit.puts.into_iter().chain(merged) {
            self.table.put(key, &value, seqno);
        }
        for key in commit.deletes {
            self.table.delete(&key);
        }
        self.head = seqno;
        self.log.append(seqno, &commit.ops);
        Ok(seqno)
    }

    fn check_conditions(&self, commit: &Commit) -> Result<(), CommitError> {
        let holds = |condition: &Condition| match condition {
            Condition::Version { key, version } => self.table.version(key) == Some(*version),
            Condition::Present { key } => self.table.version(key).is_some(),
            Condition::Absent { key } => self.table.version(key).is_none(),
            Condition::RangeEmpty(_) => true,
        };
        let merges_have_records = commit.merges.iter().all(|(key, _)| self.table.version(key).is_some());
        if merges_have_records && commit.conditions.iter().all(holds) && self.ranges_are_empty(commit) {
            Ok(())
        } else {
            Err(CommitError::Conflict)
        }
    }

    /// Returns whether the ranges that a commit requires to be empty have no keys but its own.
    fn ranges_are_empty(&self, commit: &Commit) -> bool {
        let ranges = || {
            commit.conditions.iter().filter_map(|condition| match condition {
                Condition::RangeEmpty(range) => Some(range),
                _ => None,
            })
        };
        if ranges().all(|range| self.table.keys(range).next().is_none()) {
            return true;
        }
        let own: BTreeSet<&[u8]> = commit
            .puts
            .iter()
            .map(|(key, _)| key.as_slice())
            .chain(commit.deletes.iter().map(Vec::as_slice))
            .collect();
        ranges().flat_map(|range| self.table.keys(range)).all(|key| own.contains(key))
    }

    /// Computes the merged records before anything is written, so that a merge that fails changes nothing.
    fn apply_merges(&self, commit: &Commit) -> Result<Vec<(Vec<u8>, crate::Value)>, CommitError> {
        let merge = |(key, merge): &(Vec<u8>, crate::Merge)| {
            let found = self.table.get(key).ok_or(CommitError::Conflict)?;
            Ok((key.clone(), merge.apply(&found.value).map_err(EngineError::from)?))
        };
        commit.merges.iter().map(merge).collect()
    }
}
