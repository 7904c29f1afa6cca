//! An engine in memory that calls a function before each call.

use meta::{
    Commit, CommitError, Engine, EngineError, KeyRange, LogError, LoggedOp, MemoryEngine, Reader, Rows,
    RunBuilder, Seqno, Versioned,
};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// An engine in memory with a function that is called before each call.
pub(crate) struct HookedEngine {
    tables: MemoryEngine,
    is_remote: bool,
    before_call: Box<dyn Fn() + Send + Sync>,
}

impl HookedEngine {
    pub(crate) fn new(before_call: impl Fn() + Send + Sync + 'static) -> Self {
        Self { tables: MemoryEngine::default(), is_remote: false, before_call: Box::new(before_call) }
    }

    /// Returns an engine that counts as one across a network.
    pub(crate) fn remote(before_call: impl Fn() + Send + Sync + 'static) -> Self {
        Self { is_remote: true, ..Self::new(before_call) }
    }

    fn tables(&self) -> &MemoryEngine {
        (self.before_call)();
        &self.tables
    }
}

impl fmt::Debug for HookedEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookedEngine").field("tables", &self.tables).finish_non_exhaustive()
    }
}

impl Reader for HookedEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        self.tables().get(key)
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        self.tables().multi_get(keys)
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        self.tables().scan(from, to, limit)
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        self.tables().last(range)
    }
}

impl Engine for HookedEngine {
    fn snapshot_with_head(&self) -> Result<(Arc<dyn Reader>, Seqno), EngineError> {
        self.tables().snapshot_with_head()
    }

    fn is_remote(&self) -> bool {
        self.is_remote
    }

    fn commit(&self, commit: Commit) -> Result<Seqno, CommitError> {
        self.tables().commit(commit)
    }

    fn log_after(&self, cursor: Seqno, limit: usize) -> Result<Vec<LoggedOp>, LogError> {
        self.tables().log_after(cursor, limit)
    }

    fn sync(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn begin_run(&self) -> Result<Box<dyn RunBuilder<'_> + '_>, EngineError> {
        self.tables().begin_run()
    }

    fn register(&self, consumer: &str, at: Seqno) -> Result<(), LogError> {
        self.tables().register(consumer, at)
    }

    fn cursor(&self, consumer: &str) -> Result<Seqno, LogError> {
        self.tables().cursor(consumer)
    }

    fn advance(&self, consumer: &str, to: Seqno) -> Result<(), LogError> {
        self.tables().advance(consumer, to)
    }

    fn forget_consumer(&self, consumer: &str) -> Result<(), LogError> {
        self.tables().forget_consumer(consumer)
    }

    fn head(&self) -> Seqno {
        self.tables.head()
    }

    fn memory_bytes(&self) -> u64 {
        self.tables.memory_bytes()
    }
}

/// An engine that now and then lets other threads go first before it reads or commits, so that each step of a change meets changes
/// that are made at the same time.
pub(crate) fn interleaving_engine() -> Arc<HookedEngine> {
    let calls = AtomicU64::new(0);
    Arc::new(HookedEngine::new(move || {
        if calls.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62 == 0 {
            thread::sleep(Duration::from_micros(50));
        }
    }))
}
