//! Filling an empty engine: with records, as one run, and then with the ops of a log.

use crate::{Error, Result};
use meta::{Engine, EngineError, LoggedOp, OpContext, Run, RunBuilder, RunRecord, Seqno, Staged, namespace};
use std::ops::Bound;

/// Ops that are applied in one commit.
const OPS_PER_COMMIT: usize = 1024;

/// Records for an empty engine. Readers see all of them or none.
pub(crate) struct Fill<'e> {
    run: Box<dyn RunBuilder<'e> + 'e>,
    pub(crate) records: u64,
}

impl<'e> Fill<'e> {
    /// Begins to fill an engine, which must have no records.
    pub(crate) fn begin(engine: &'e dyn Engine) -> Result<Self> {
        if !engine.scan(Bound::Unbounded, Bound::Unbounded, 1)?.is_empty() {
            return Err(Error::Inconsistent("the metadata engine has records already".into()));
        }
        Ok(Self { run: engine.begin_run()?, records: 0 })
    }

    /// Adds a record. Its key must be greater than that of the record before.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.run.put(key, value)?;
        self.records += 1;
        Ok(())
    }

    /// Makes all records visible and durable. Returns their number.
    pub(crate) fn finish(self) -> Result<u64> {
        let mut run: Box<dyn Run + 'e> = self.run.finish()?;
        run.ingest(&RunRecord::default())?;
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
