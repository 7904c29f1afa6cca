//! Filling an empty engine: with records, as runs, and then with the ops of a log.

use crate::{Error, Result};
use meta::{Engine, LoggedOp, OpContext, Run, RunBuilder, RunKeys, RunRecord, Seqno, Staged, namespace};
use std::mem;
use std::ops::Bound;

/// Ops that are applied in one commit.
const OPS_PER_COMMIT: usize = 1024;

/// Records, and bytes of keys and records, at which a run for a remote engine ends. A database adds a run in one transaction, whose size is limited.
const REMOTE_RUN_RECORDS: u64 = 65_536;
const REMOTE_RUN_BYTES: u64 = 64 << 20;

/// Records for an empty engine. In an engine on disk, readers see all of them or none. In a remote one they see each run when it is
/// added, so the caller has to mark the engine as incomplete meanwhile.
pub(crate) struct Fill<'e> {
    engine: &'e dyn Engine,
    /// The run that is being built; `None` between two runs.
    run: Option<Box<dyn RunBuilder<'e> + 'e>>,
    size: RunSize,
    /// Checks the keys of all runs.
    keys: RunKeys,
    pub(crate) records: u64,
}

/// The size of a run.
#[derive(Debug, Clone, Copy, Default)]
struct RunSize {
    records: u64,
    bytes: u64,
}

impl RunSize {
    /// Returns whether a run for a remote engine ends here.
    fn is_full(self) -> bool {
        self.records >= REMOTE_RUN_RECORDS || self.bytes >= REMOTE_RUN_BYTES
    }
}

impl<'e> Fill<'e> {
    /// Begins to fill an engine, which must have no records.
    pub(crate) fn begin(engine: &'e dyn Engine) -> Result<Self> {
        if !engine.scan(Bound::Unbounded, Bound::Unbounded, 1)?.is_empty() {
            return Err(Error::Inconsistent("the metadata engine has records already".into()));
        }
        Ok(Self { engine, run: None, size: RunSize::default(), keys: RunKeys::default(), records: 0 })
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`Error::Inconsistent`] unless its key is greater than that of the record before.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keys.add(key).map_err(|error| Error::Inconsistent(error.to_string()))?;
        let run = match &mut self.run {
            Some(run) => run,
            None => self.run.insert(self.engine.begin_run()?),
        };
        run.put(key, value)?;
        self.records += 1;
        self.size.records += 1;
        self.size.bytes += (key.len() + value.len()) as u64;
        if self.engine.is_remote() && self.size.is_full() {
            self.end_run()?;
        }
        Ok(())
    }

    /// Makes the records of the current run visible and durable.
    fn end_run(&mut self) -> Result<()> {
        self.size = RunSize::default();
        let Some(run) = mem::take(&mut self.run) else { return Ok(()) };
        let mut run: Box<dyn Run + 'e> = run.finish()?;
        run.ingest(&RunRecord::default())?;
        Ok(())
    }

    /// Makes all records visible and durable. Returns their number.
    pub(crate) fn finish(mut self) -> Result<u64> {
        self.end_run()?;
        Ok(self.records)
    }
}

/// Applies the ops of a log again, to an engine that has the state from before them.
pub(crate) struct Replay<'e> {
    engine: &'e dyn Engine,
    /// The newest commit whose ops have been applied.
    pub(crate) at: Seqno,
    pub(crate) ops: u64,
    /// The context of the last op.
    pub(crate) last: Option<OpContext>,
}

impl<'e> Replay<'e> {
    /// Begins after a commit, whose state the engine has.
    pub(crate) fn after(engine: &'e dyn Engine, seqno: Seqno) -> Self {
        Self { engine, at: seqno, ops: 0, last: None }
    }

    /// Applies ops, in order. Ignores those that the state contains already.
    pub(crate) fn apply(&mut self, ops: &[LoggedOp]) -> Result<()> {
        let first = ops.partition_point(|op| op.seqno <= self.at);
        for batch in ops[first..].chunks(OPS_PER_COMMIT) {
            self.commit(batch)?;
        }
        Ok(())
    }

    fn commit(&mut self, batch: &[LoggedOp]) -> Result<()> {
        let mut txn = Staged::new(self.engine);
        for LoggedOp { seqno, context, op, .. } in batch {
            let applied = namespace::apply(&mut txn, context, op).map_err(|error| {
                Error::Inconsistent(format!("the op of commit {} fails: {error}", seqno.0))
            })?;
            txn.keep_op(context, op, &applied);
        }
        let mut commit = txn.into_commit();
        // The log of the filled engine begins with changes that are made after the restoration.
        commit.ops.clear();
        self.engine.commit(commit)?;
        self.ops += batch.len() as u64;
        if let Some(last) = batch.last() {
            (self.at, self.last) = (last.seqno, Some(last.context));
        }
        Ok(())
    }
}
