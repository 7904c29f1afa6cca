//! An engine with injected faults: conflicts, errors before an effect, lost replies, and crashes.

use meta::{
    Commit, CommitError, Engine, EngineError, KeyRange, LogError, LoggedOp, MemoryEngine, OpRecord, Reader,
    Rows, Run, RunBuilder, RunRecord, Seqno, Versioned,
};
use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use store::Entropy;

/// Fault rates per thousand calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EngineFaultRates {
    /// A commit conflicts with another one.
    pub(crate) conflict: u64,
    /// A call fails without effect.
    pub(crate) unavailable: u64,
    /// A commit takes effect and its reply is lost.
    pub(crate) lost_reply: u64,
    /// The machine crashes in a call, before or after the effect.
    pub(crate) crash: u64,
}

/// A memory engine behind injected faults. After a crash all calls fail.
pub(crate) struct FaultyEngine {
    inner: Arc<MemoryEngine>,
    entropy: Entropy,
    rates: EngineFaultRates,
    crashed: AtomicBool,
    /// Called before each ingestion of a run, as another client that commits meanwhile.
    rival: Mutex<Option<Rival>>,
}

/// A client that commits to the tables below the faults.
pub(crate) type Rival = Box<dyn Fn(&Arc<MemoryEngine>) + Send>;

impl FaultyEngine {
    pub(crate) fn new(inner: Arc<MemoryEngine>, seed: u64, rates: EngineFaultRates) -> Self {
        let (crashed, rival) = Default::default();
        Self { inner, entropy: Entropy::new(seed), rates, crashed, rival }
    }

    pub(crate) fn set_rival(&self, rival: Rival) {
        *self.rival.lock().unwrap_or_else(PoisonError::into_inner) = Some(rival);
    }

    pub(crate) fn has_crashed(&self) -> bool {
        self.crashed.load(Ordering::SeqCst)
    }

    fn draw(&self, per_thousand: u64) -> bool {
        self.entropy.below(1000) < per_thousand
    }

    fn crash(&self) -> EngineError {
        self.crashed.store(true, Ordering::SeqCst);
        EngineError::Uncertain("the machine crashed".into())
    }

    /// Injects a fault before the effect of a call.
    fn inject_before(&self) -> Result<(), EngineError> {
        if self.has_crashed() {
            return Err(EngineError::Unavailable("the machine has crashed".into()));
        }
        if self.draw(self.rates.crash) {
            return Err(self.crash());
        }
        if self.draw(self.rates.unavailable) {
            return Err(EngineError::Unavailable("injected".into()));
        }
        Ok(())
    }

    fn write(&self, effect: impl FnOnce() -> Result<Seqno, CommitError>) -> Result<Seqno, CommitError> {
        self.inject_before()?;
        if self.draw(self.rates.conflict) {
            return Err(CommitError::Conflict);
        }
        let seqno = effect()?;
        if self.draw(self.rates.crash) {
            return Err(self.crash().into());
        }
        if self.draw(self.rates.lost_reply) {
            return Err(EngineError::Uncertain("the reply was lost".into()).into());
        }
        Ok(seqno)
    }
}

impl fmt::Debug for FaultyEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyEngine").field("rates", &self.rates).finish_non_exhaustive()
    }
}

impl Reader for FaultyEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        self.inject_before()?;
        self.inner.get(key)
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        self.inject_before()?;
        self.inner.multi_get(keys)
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        self.inject_before()?;
        self.inner.scan(from, to, limit)
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        self.inject_before()?;
        self.inner.last(range)
    }
}

impl Engine for FaultyEngine {
    fn snapshot_with_head(&self) -> Result<(Arc<dyn Reader>, Seqno), EngineError> {
        self.inner.snapshot_with_head()
    }

    fn commit(&self, commit: Commit) -> Result<Seqno, CommitError> {
        self.write(|| self.inner.commit(commit))
    }

    fn log_after(&self, cursor: Seqno, limit: usize) -> Result<Vec<LoggedOp>, LogError> {
        self.inject_before()?;
        self.inner.log_after(cursor, limit)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.inner.sync()
    }

    fn begin_run(&self) -> Result<Box<dyn RunBuilder<'_> + '_>, EngineError> {
        self.inject_before()?;
        let inner = self.inner.begin_run()?;
        Ok(Box::new(FaultyRun { engine: self, inner }))
    }

    fn register(&self, consumer: &str, at: Seqno) -> Result<(), LogError> {
        self.inner.register(consumer, at)
    }

    fn cursor(&self, consumer: &str) -> Result<Seqno, LogError> {
        self.inner.cursor(consumer)
    }

    fn advance(&self, consumer: &str, to: Seqno) -> Result<(), LogError> {
        self.inner.advance(consumer, to)
    }

    fn forget_consumer(&self, consumer: &str) -> Result<(), LogError> {
        self.inner.forget_consumer(consumer)
    }

    fn head(&self) -> Seqno {
        self.inner.head()
    }

    fn memory_bytes(&self) -> u64 {
        self.inner.memory_bytes()
    }
}

/// A run behind injected faults, while it is built (`R` is a builder) and afterwards.
struct FaultyRun<'e, R> {
    engine: &'e FaultyEngine,
    inner: R,
}

impl<'e> RunBuilder<'e> for FaultyRun<'e, Box<dyn RunBuilder<'e> + 'e>> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.inner.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), EngineError> {
        self.inner.delete(key)
    }

    fn log(&mut self, record: &OpRecord) -> Result<(), EngineError> {
        self.inner.log(record)
    }

    fn finish(self: Box<Self>) -> Result<Box<dyn Run + 'e>, EngineError> {
        self.engine.inject_before()?;
        Ok(Box::new(FaultyRun { engine: self.engine, inner: self.inner.finish()? }))
    }
}

impl<'e> Run for FaultyRun<'e, Box<dyn Run + 'e>> {
    fn ingest(&mut self, record: &RunRecord) -> Result<Seqno, CommitError> {
        if let Some(rival) = &*self.engine.rival.lock().unwrap_or_else(PoisonError::into_inner) {
            rival(&self.engine.inner);
        }
        self.engine.write(|| self.inner.ingest(record))
    }
}
