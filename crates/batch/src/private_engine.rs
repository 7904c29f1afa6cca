//! A private namespace as an engine, so that a file system can be mounted over it.
//!
//! A front end commits rows together with the ops that made them. The rows become local changes, and the ops go to the log of the batch, in the
//! form in which a merge accepts them: at one moment, by the superuser of the batch, without open files. Ops that only an open file needs are
//! not logged.
//!
//! Differs from other engines: there is one front end, so there are no consumers of the log, and only the newest commits can be read. There are
//! no snapshots.
//!
//! Invariants: a commit is in the log of the batch as a whole before its rows can be read; the effect of the logged ops equals the local
//! changes, once no open file without a name is left.

use crate::change::Change;
use crate::op_log::OpLog;
use crate::overlay::{Overlay, Pending};
use crate::private_namespace::JobError;
use crate::progress::Progress;
use crate::sealed::SealedBatch;
use meta::codec::encode_number;
use meta::namespace::read_inode;
use meta::{
    Commit, CommitError, Condition, Effect, Engine, EngineError, FsError, Ino, KeyRange, LogError, LoggedOp,
    Moment, Op, OpContext, OpRecord, Origin, Reader, Rows, RunBuilder, Seqno, Versioned, schema,
};
use std::collections::VecDeque;
use std::ops::{Bound, Range};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use store::Timestamp;

/// Maximum number of ops of the newest commits that are kept in memory, for the front end that follows the log.
const RECENT_OPS_MAX: usize = 4096;

/// Maximum number of orphans purged in one step of sealing.
const ORPHANS_PAGE: usize = 1024;

/// The engine of a private namespace.
#[derive(Debug)]
pub struct PrivateEngine {
    dir: PathBuf,
    state: RwLock<State>,
    progress: Arc<Progress>,
    /// The inode number behind the last leased one.
    lease_end: Ino,
    /// The moment that all logged ops get.
    at: Moment,
}

/// The state that commits change.
#[derive(Debug)]
struct State {
    overlay: Overlay,
    log: OpLog,
    /// The ops of the newest commits.
    recent: VecDeque<LoggedOp>,
    /// The newest commit whose ops are not in `recent` any more.
    forgotten: Seqno,
    /// Whether the batch has ended, so that changes are refused.
    is_sealed: bool,
}

impl PrivateEngine {
    pub(crate) fn new(
        dir: PathBuf,
        mut overlay: Overlay,
        log: OpLog,
        (unused, progress): (Range<Ino>, Arc<Progress>),
        at: Moment,
    ) -> Self {
        // The file system over the engine leases its inode numbers from here on.
        overlay.version.0 += 1;
        let next = Change::Put(encode_number(unused.start.0).into());
        overlay.local.insert(schema::next_ino(), next, overlay.version);
        let forgotten = overlay.version;
        let state = State { overlay, log, recent: VecDeque::new(), forgotten, is_sealed: false };
        Self { dir, state: RwLock::new(state), progress, lease_end: unused.end, at }
    }

    /// Returns the counters of the job, which can be read while it runs.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Ends the namespace and makes its batch durable. Open files without a name are gone then. Later commits fail.
    pub fn seal(&self) -> Result<SealedBatch, JobError> {
        let mut state = self.write();
        state.is_sealed = true;
        state.log.sync()?;
        state.purge_orphans()?;
        SealedBatch::write(&self.dir, &state.overlay)
    }

    /// Returns the op as it is logged; `None` for an op that only an open file or this engine needs. Fails for an op that cannot be part
    /// of a batch, and if all leased inode numbers are used.
    fn logged(&self, state: &State, record: &OpRecord) -> Result<Option<OpRecord>, EngineError> {
        let mut op = record.op.clone();
        match &mut op {
            Op::Root { .. } | Op::Lease { .. } | Op::Purge { .. } => return Ok(None),
            Op::Create { ino, .. } if *ino >= self.lease_end => {
                return Err(EngineError::Full("the batch has used all its inode numbers".into()));
            }
            Op::Unlink { keep, .. } | Op::Rename { keep, .. } => *keep = false,
            Op::Link { ino, .. } if state.is_orphan(*ino)? => {
                return Err(unsupported("a new name for a file without one"));
            }
            Op::SetAttr { ino, .. }
            | Op::Accessed { ino, .. }
            | Op::SetXattr { ino, .. }
            | Op::RemoveXattr { ino, .. }
            | Op::Publish { ino, .. }
            | Op::Splice { ino, .. }
                if state.is_orphan(*ino)? =>
            {
                return Ok(None);
            }
            Op::Create { .. }
            | Op::Link { .. }
            | Op::Rmdir { .. }
            | Op::SetAttr { .. }
            | Op::Accessed { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. }
            | Op::Publish { .. }
            | Op::Splice { .. } => {}
            Op::CreateOrphan { .. } => return Err(unsupported("a file without a name")),
            Op::SetQuota { .. } => return Err(unsupported("a quota")),
            Op::HandOn { .. }
            | Op::Import { .. }
            | Op::Refresh { .. }
            | Op::Vanish { .. }
            | Op::Evict { .. }
            | Op::AwaitExport { .. }
            | Op::Exported { .. }
            | Op::SetBatch { .. }
            | Op::SetRefusedOp { .. } => return Err(unsupported("a change of this kind")),
        }
        let context = OpContext { now: record.context.now, ..batch_context(self.at) };
        Ok(Some(OpRecord { context, op, effect: record.effect }))
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the context of the ops of a file system in batch mode, except for the time. The kernel has checked the rights of each caller
/// already, as in any mount, so the ops are those of the superuser.
pub(crate) fn batch_context(at: Moment) -> OpContext {
    OpContext { now: Timestamp(0), at, uid: 0, gid: 0, origin: Origin::Other }
}

/// Returns the effect of an op if no file is open: a file without a name is then gone.
fn without_orphan(effect: Effect, commit: &Commit) -> Effect {
    let becomes_orphan = |ino: &Ino| {
        let key = schema::orphan(*ino);
        commit.puts.iter().any(|(put, _)| *put == key)
    };
    match effect.inode.filter(becomes_orphan) {
        Some(gone) if effect.other.is_none() => Effect { inode: None, other: Some(gone), ..effect },
        _ => effect,
    }
}

/// Returns the error for a change that cannot be part of a batch.
fn unsupported(what: &str) -> EngineError {
    EngineError::Unavailable(format!("{what} cannot be part of a batch"))
}

impl State {
    /// Returns whether an inode has no name, so that only open files refer to it.
    fn is_orphan(&self, ino: Ino) -> Result<bool, EngineError> {
        Ok(self.overlay.find(&schema::orphan(ino), false)?.is_some())
    }

    /// Returns the directory of the file whose content an op stores; `None` for other ops.
    fn home_of_content(&self, op: &Op) -> Result<Option<Ino>, EngineError> {
        let (Op::Publish { ino, .. } | Op::Splice { ino, .. }) = op else { return Ok(None) };
        let file = read_inode(&self.overlay, *ino).map_err(FsError::into_engine_error)?;
        Ok(file.and_then(|file| file.home).map(|(parent, _)| parent))
    }

    /// Returns whether a condition of a commit holds now.
    fn holds(&self, condition: &Condition, commit: &Commit) -> Result<bool, EngineError> {
        Ok(match condition {
            Condition::Version { key, version } => {
                self.overlay.find(key, false)?.is_some_and(|found| found.version == *version)
            }
            Condition::Present { key } => self.overlay.find(key, false)?.is_some(),
            Condition::Absent { key } => self.overlay.find(key, false)?.is_none(),
            Condition::RangeEmpty(range) => {
                let written = commit.written_keys().filter(|key| range.contains(key)).count();
                let (from, to) = range.bounds();
                let rows = self.overlay.scan(from, to, written + 1)?;
                rows.iter().all(|(key, _)| commit.written_keys().any(|written| written == key))
            }
        })
    }

    /// Notes that the batch depends on the condition of a commit, unless that is about the next inode number or a fresh inode.
    fn note(&self, condition: &Condition) {
        let base = &self.overlay.base;
        match condition {
            Condition::Version { key, .. } | Condition::Absent { key } if *key != schema::next_ino() => {
                if !base.is_fresh(key) {
                    base.note(key);
                }
            }
            Condition::Version { .. } | Condition::Absent { .. } => {}
            Condition::Present { key } => base.note_present(key.clone()),
            Condition::RangeEmpty(range) => base.note_range(range),
        }
    }

    /// Returns the local changes of a commit; `None` if it merges into a record that does not exist.
    fn changes(&self, commit: Commit) -> Result<Option<Pending>, EngineError> {
        let mut changes = Vec::with_capacity(commit.puts.len() + commit.deletes.len() + commit.merges.len());
        changes.extend(commit.puts.into_iter().map(|(key, value)| (key, Change::Put(value))));
        changes.extend(commit.deletes.into_iter().map(|key| (key, Change::Delete)));
        for (key, merge) in commit.merges {
            if self.overlay.find(&key, false)?.is_none() {
                return Ok(None);
            }
            let change = self.overlay.merged(&key, self.overlay.local.get(&key)?, merge)?;
            changes.push((key, change));
        }
        changes.iter().try_for_each(|(key, _)| schema::check_writable(key))?;
        Ok(Some(Pending(changes)))
    }

    /// Keeps the ops of the newest commit for [`Engine::log_after`], and forgets the oldest ops.
    fn remember(&mut self, records: Vec<OpRecord>) {
        let seqno = self.overlay.version;
        self.recent.extend(records.into_iter().map(|record| LoggedOp::new(seqno, record)));
        while self.recent.len() > RECENT_OPS_MAX {
            let Some(oldest) = self.recent.pop_front() else { break };
            self.forgotten = oldest.seqno;
        }
    }

    /// Removes the inodes that only open files refer to, as if their last name had been removed without one.
    fn purge_orphans(&mut self) -> Result<(), EngineError> {
        let range = schema::orphans();
        loop {
            let (from, to) = range.bounds();
            let orphans = self.overlay.scan(from, to, ORPHANS_PAGE)?;
            if orphans.is_empty() {
                return Ok(());
            }
            for (key, _) in orphans {
                let op = Op::Purge { ino: schema::ino_of(&key)? };
                let context = batch_context(Moment::default());
                let (_, changes) = self.overlay.apply(&context, &op).map_err(FsError::into_engine_error)?;
                self.overlay.commit(changes);
            }
        }
    }
}

impl Reader for PrivateEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        self.read().overlay.get(key)
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        self.read().overlay.multi_get(keys)
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        self.read().overlay.scan(from, to, limit)
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        self.read().overlay.last(range)
    }
}

impl Engine for PrivateEngine {
    fn snapshot_with_head(&self) -> Result<(Arc<dyn Reader>, Seqno), EngineError> {
        Err(EngineError::Unavailable("a batch has no snapshots".into()))
    }

    fn has_lasting_snapshots(&self) -> bool {
        false
    }

    fn commit(&self, mut commit: Commit) -> Result<Seqno, CommitError> {
        let mut guard = self.write();
        let state = &mut *guard;
        for condition in &commit.conditions {
            if !state.holds(condition, &commit)? {
                return Err(CommitError::Conflict);
            }
        }
        if commit.is_check() {
            return Ok(state.overlay.version);
        }
        if state.is_sealed {
            return Err(EngineError::Unavailable("the batch has ended".into()).into());
        }
        state.overlay.make_room()?;
        let mut logged = Vec::with_capacity(commit.ops.len());
        for record in &commit.ops {
            let record = self.logged(state, record)?;
            logged.extend(
                record.map(|record| OpRecord { effect: without_orphan(record.effect, &commit), ..record }),
            );
        }
        commit.conditions.iter().for_each(|condition| state.note(condition));
        let ops = std::mem::take(&mut commit.ops);
        let Some(changes) = state.changes(commit)? else { return Err(CommitError::Conflict) };
        state.log.append_commit(&logged)?;
        state.overlay.commit(changes);
        for record in &logged {
            self.progress.count(record, state.home_of_content(&record.op)?);
        }
        state.remember(ops);
        Ok(state.overlay.version)
    }

    fn log_after(&self, cursor: Seqno, limit: usize) -> Result<Vec<LoggedOp>, LogError> {
        let state = self.read();
        let first = state.recent.partition_point(|logged| logged.seqno <= cursor);
        if cursor < state.forgotten {
            return Err(LogError::Lagged { head: state.overlay.version });
        }
        let mut ops: Vec<LoggedOp> = Vec::new();
        for logged in state.recent.range(first..) {
            if ops.len() >= limit && ops.last().is_some_and(|last| last.seqno != logged.seqno) {
                break;
            }
            ops.push(logged.clone());
        }
        Ok(ops)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.write().log.sync()
    }

    fn begin_run(&self) -> Result<Box<dyn RunBuilder<'_> + '_>, EngineError> {
        Err(unsupported("another batch"))
    }

    fn register(&self, consumer: &str, _: Seqno) -> Result<(), LogError> {
        Err(LogError::NoConsumer(consumer.to_owned()))
    }

    fn cursor(&self, consumer: &str) -> Result<Seqno, LogError> {
        Err(LogError::NoConsumer(consumer.to_owned()))
    }

    fn advance(&self, consumer: &str, _: Seqno) -> Result<(), LogError> {
        Err(LogError::NoConsumer(consumer.to_owned()))
    }

    fn forget_consumer(&self, _: &str) -> Result<(), LogError> {
        Ok(())
    }

    fn head(&self) -> Seqno {
        self.read().overlay.version
    }

    /// Returns 0: a front end cannot make the changes fewer, and beyond the limit of the namespace they are in files.
    fn memory_bytes(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobOptions, PrivateNamespace};
    use meta::{CommitError, LogCap, MemoryEngine, Value};

    fn engine(folder: &std::path::Path) -> PrivateEngine {
        let base = MemoryEngine::new(LogCap::UNLIMITED);
        let options = JobOptions::default();
        let job =
            PrivateNamespace::begin(folder, base.snapshot().unwrap(), Ino(100)..Ino(200), options).unwrap();
        job.into_engine(Moment::default())
    }

    #[test]
    fn a_commit_depends_on_the_versions_that_were_read() {
        let folder = tempfile::tempdir().unwrap();
        let engine = engine(&folder.path().join("job"));
        let put = |value: &[u8], conditions| Commit {
            puts: vec![(b"X1".to_vec(), Value::from(value))],
            conditions,
            ..Commit::default()
        };
        engine.commit(put(b"a", vec![Condition::Absent { key: b"X1".to_vec() }])).unwrap();
        let first = engine.get(b"X1").unwrap().unwrap().version;
        let unchanged = || vec![Condition::Version { key: b"X1".to_vec(), version: first }];
        engine.commit(put(b"b", unchanged())).unwrap();
        assert_eq!(engine.commit(put(b"c", unchanged())), Err(CommitError::Conflict));
        assert_eq!(&engine.get(b"X1").unwrap().unwrap().value[..], b"b");
    }
}
