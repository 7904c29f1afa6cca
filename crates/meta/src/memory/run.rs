//! Runs of the in-memory engine.

use super::MemoryEngine;
use crate::OpRecord;
use crate::engine::Commit;
use crate::error::{CommitError, EngineError};
use crate::record::{Seqno, Value};
use crate::run::{LogPager, Run, RunBuilder, RunKeys, RunRecord};

/// A run in memory, while it is built and afterwards.
pub(super) struct MemoryRun<'e> {
    engine: &'e MemoryEngine,
    version: Seqno,
    keys: RunKeys,
    rows: Vec<(Vec<u8>, Option<Value>)>,
    pager: LogPager,
    pages: Vec<Vec<u8>>,
    /// Whether the run was added to an engine.
    is_ingested: bool,
}

impl<'e> MemoryRun<'e> {
    pub(super) fn new(engine: &'e MemoryEngine, version: Seqno) -> Self {
        Self {
            engine,
            version,
            keys: RunKeys::default(),
            rows: Vec::new(),
            pager: LogPager::new(version),
            pages: Vec::new(),
            is_ingested: false,
        }
    }

    fn add(&mut self, key: &[u8], row: Option<Value>) -> Result<(), EngineError> {
        self.keys.add(key)?;
        self.rows.push((key.to_vec(), row));
        Ok(())
    }
}

impl<'e> RunBuilder<'e> for MemoryRun<'e> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.add(key, Some(value.into()))
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), EngineError> {
        self.add(key, None)
    }

    fn log(&mut self, record: &OpRecord) -> Result<(), EngineError> {
        self.pages.extend(self.pager.add(record).map(|(_, page)| page));
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Box<dyn Run + 'e>, EngineError> {
        self.pages.extend(self.pager.end_page().map(|(_, page)| page));
        Ok(self)
    }
}

impl Run for MemoryRun<'_> {
    fn ingest(&mut self, record: &RunRecord) -> Result<Seqno, CommitError> {
        assert!(!self.is_ingested, "a run is added once");
        let mut state = self.engine.write();
        let RunRecord { conditions, merges } = record.clone();
        let commit = Commit { conditions, merges, ..Commit::default() };
        state.check_conditions(&commit)?;
        let merged = state.apply_merges(&commit)?;
        let seqno = self.pager.run().seqno_after(state.head);
        state.log.append_run(seqno, &self.pager.run(), &self.pages)?;
        for (key, value) in merged {
            state.table.put(key, &value, seqno);
        }
        for (key, row) in self.rows.drain(..) {
            match row {
                Some(value) => state.table.put(key, &value, self.version),
                None => state.table.delete(&key),
            }
        }
        state.head = seqno;
        self.is_ingested = true;
        Ok(seqno)
    }
}
