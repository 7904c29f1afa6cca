//! Replays of the log of an engine, which check that its ops explain its tables.

use crate::engine::{LogCap, LoggedOp, Reader};
use crate::memory::MemoryEngine;
use crate::record::Value;
use crate::{EngineError, FsError, namespace};
use std::ops::Bound;

/// Returns a new engine in memory to which the ops of a log were applied, commit by commit. The log must be complete.
pub fn replayed(log: &[LoggedOp]) -> Result<MemoryEngine, FsError> {
    let engine = MemoryEngine::new(LogCap::default());
    for commit in log.chunk_by(|a, b| a.seqno == b.seqno) {
        let ops: Vec<_> = commit.iter().map(|logged| (logged.context, logged.op.clone())).collect();
        namespace::replay(&engine, &ops)?;
    }
    Ok(engine)
}

/// Returns whether the tables of an engine are those that a replay of its log makes. Versions are not compared: those of
/// runs are reserved numbers.
pub fn equals_replay(engine: &dyn Reader, log: &[LoggedOp]) -> Result<bool, FsError> {
    Ok(records(&replayed(log)?)? == records(engine)?)
}

/// Returns all keys of an engine with their records, without the versions.
fn records(engine: &dyn Reader) -> Result<Vec<(Vec<u8>, Value)>, EngineError> {
    let rows = engine.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX)?;
    Ok(rows.into_iter().map(|(key, row)| (key, row.value)).collect())
}
