//! The namespace world: random commits, crashes, checkpoints and comparisons with the model.

use super::faulty_engine::{EngineFaultRates, FaultyEngine};
use super::ops::{OpSource, moment};
use crate::{Failure, Report, SimClock};
use meta::{
    Applied, Engine, EngineError, FsError, LogCap, LoggedOp, MemoryEngine, Namespace, Op, OpContext, Origin,
    Reader, Seqno, Staged, invariants, namespace,
};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use store::{Clock, Entropy};

const STEPS: u64 = 120;

/// The log consumer that retains the whole log of the live engine.
const CONSUMER: &str = "disk";

type OpOutcome = Result<Applied, FsError>;

/// The state of the world.
pub(super) struct NamespaceWorld {
    seed: u64,
    step: u64,
    clock: SimClock,
    entropy: Entropy,
    rates: EngineFaultRates,
    source: OpSource,
    /// The live side, which a crash erases.
    tables: Arc<MemoryEngine>,
    engine: Arc<FaultyEngine>,
    namespace: Option<Namespace>,
    /// The state on disk, which survives a crash: a checkpoint of the tables, and the log after it.
    checkpoint: MemoryEngine,
    durable_log: Vec<LoggedOp>,
    /// Number of entries of `durable_log` that are synced and survive each crash.
    synced: usize,
    model: MemoryEngine,
    report: Report,
}

impl NamespaceWorld {
    pub(super) fn new(seed: u64) -> Self {
        let entropy = Entropy::new(seed);
        let rates = rates(&entropy);
        let tables = Arc::new(new_engine());
        let engine = Arc::new(FaultyEngine::new(tables.clone(), entropy.next_u64(), rates));
        Self {
            seed,
            step: 0,
            clock: SimClock::default(),
            source: OpSource::new(entropy.next_u64()),
            entropy,
            rates,
            checkpoint: tables.fork(),
            tables,
            engine,
            namespace: None,
            durable_log: Vec::new(),
            synced: 0,
            model: new_engine(),
            report: Report::default(),
        }
    }

    pub(super) fn run(mut self) -> Result<Report, Failure> {
        while self.step < STEPS {
            self.step += 1;
            self.clock.advance(Duration::from_nanos(1 + self.entropy.below(1000)));
            if let Err(what) = self.step_once() {
                return Err(Failure { world: "namespace", seed: self.seed, step: self.step, what });
            }
        }
        Ok(self.report)
    }

    fn step_once(&mut self) -> Result<(), String> {
        if self.engine.has_crashed() {
            self.restart()?;
        }
        let Some(namespace) = self.namespace.take() else { return self.open() };
        let result = match self.entropy.below(20) {
            0 => self.compare(),
            1 => {
                self.synced = self.durable_log.len();
                Ok(())
            }
            2 if self.synced == self.durable_log.len() => {
                self.checkpoint = self.tables.fork();
                self.report.count("checkpoints");
                Ok(())
            }
            2..=4 => self.commit_batch(&namespace),
            _ => self.commit_one(&namespace),
        };
        self.namespace = Some(namespace);
        result
    }

    fn context(&self) -> OpContext {
        let now = self.clock.now();
        OpContext { now, at: moment(now), uid: 1, gid: 2, origin: Origin::Other }
    }

    /// Opens the namespace, which may fail like any other call.
    fn open(&mut self) -> Result<(), String> {
        let opened = Namespace::new(self.engine.clone() as Arc<dyn Engine>, &self.context());
        self.apply_new_log()?;
        match opened {
            Ok(namespace) => self.namespace = Some(namespace),
            Err(FsError::Engine(_)) => self.report.count("failed mounts"),
            Err(error) => return Err(format!("the mount failed: {error}")),
        }
        Ok(())
    }

    fn commit_one(&mut self, namespace: &Namespace) -> Result<(), String> {
        let (context, op) = (self.context(), self.source.op(&self.tables, namespace, self.clock.now()));
        let outcome = namespace.commit(&context, &op);
        let logged_ops = self.read_new_log()?;
        self.check_outcome(
            &context,
            &[op],
            outcome.map(|applied| vec![Ok(applied)]).or_else(op_error_as_outcome),
            &logged_ops,
        )
    }

    fn commit_batch(&mut self, namespace: &Namespace) -> Result<(), String> {
        let context = self.context();
        let count = 2 + self.entropy.below(12);
        let ops: Vec<Op> =
            (0..count).map(|_| self.source.op(&self.tables, namespace, self.clock.now())).collect();
        let outcome = namespace.commit_all(&context, &ops);
        let logged_ops = self.read_new_log()?;
        self.check_outcome(&context, &ops, outcome, &logged_ops)
    }

    /// Checks that the reported outcome, the log and the model agree.
    fn check_outcome(
        &mut self,
        context: &OpContext,
        ops: &[Op],
        outcome: Result<Vec<OpOutcome>, FsError>,
        logged_ops: &[LoggedOp],
    ) -> Result<(), String> {
        match outcome {
            Ok(outcomes) => self.check_ops(context, ops, &outcomes, logged_ops),
            Err(FsError::Engine(EngineError::Uncertain(_))) => {
                self.report.count(if logged_ops.is_empty() { "lost commits" } else { "lost replies" });
                self.apply_to_model(logged_ops)
            }
            Err(FsError::Engine(EngineError::Unavailable(_)) | FsError::Conflict)
                if logged_ops.is_empty() =>
            {
                self.report.count("refused commits");
                Ok(())
            }
            Err(error) => Err(format!("{ops:?} failed with '{error}', and the log has {logged_ops:?}")),
        }
    }

    fn check_ops(
        &mut self,
        context: &OpContext,
        ops: &[Op],
        outcomes: &[OpOutcome],
        logged_ops: &[LoggedOp],
    ) -> Result<(), String> {
        let mut logged = logged_ops.iter();
        for (op, outcome) in ops.iter().zip(outcomes) {
            let expected = commit(&self.model, context, op);
            if *outcome != expected {
                return Err(format!("{op:?} returned {outcome:?}; the model returned {expected:?}"));
            }
            self.report.count(if outcome.is_ok() { "ops" } else { "rejected ops" });
            if outcome.is_ok() && logged.next().map(|logged| &logged.op) != Some(op) {
                return Err(format!("{op:?} is not in the log: {logged_ops:?}"));
            }
        }
        match logged.next() {
            None => Ok(()),
            Some(more) => Err(format!("the log has an op that was not committed: {more:?}")),
        }
    }

    /// Reads the new entries of the live log and appends them to the log on disk, not yet synced.
    fn read_new_log(&mut self) -> Result<Vec<LoggedOp>, String> {
        let cursor = self.durable_log.last().map_or(Seqno(0), |logged| logged.seqno);
        let new_ops = self.tables.log_after(cursor, usize::MAX).map_err(|error| error.to_string())?;
        self.durable_log.extend(new_ops.iter().cloned());
        Ok(new_ops)
    }

    /// Applies the new entries of the live log to the model.
    fn apply_new_log(&mut self) -> Result<(), String> {
        let new_ops = self.read_new_log()?;
        self.apply_to_model(&new_ops)
    }

    fn apply_to_model(&self, ops: &[LoggedOp]) -> Result<(), String> {
        for logged in ops {
            commit(&self.model, &logged.context, &logged.op)
                .map_err(|error| format!("the model refuses the logged op {:?}: {error}", logged.op))?;
        }
        Ok(())
    }

    /// Restarts after a crash: restores the tables from the checkpoint and the part of the log that survived.
    fn restart(&mut self) -> Result<(), String> {
        self.report.count("crashes");
        self.namespace = None;
        self.lose_unsynced();
        self.model = new_engine();
        self.apply_to_model(&self.durable_log)?;
        let tables = self.checkpoint.fork();
        let lost: Vec<&LoggedOp> =
            self.durable_log.iter().filter(|logged| logged.seqno > tables.head()).collect();
        for commit in lost.chunk_by(|a, b| a.seqno == b.seqno) {
            let ops: Vec<_> = commit.iter().map(|logged| (logged.context, logged.op.clone())).collect();
            namespace::replay(&tables, &ops)
                .map_err(|error| format!("the log cannot be replayed: {error}"))?;
        }
        self.tables = Arc::new(tables);
        self.engine = Arc::new(FaultyEngine::new(self.tables.clone(), self.entropy.next_u64(), self.rates));
        self.compare()
    }

    /// Truncates the log at a random commit boundary after the synced part.
    fn lose_unsynced(&mut self) {
        let unsynced = self.durable_log.len() - self.synced;
        let mut keep = self.synced + self.entropy.below(unsynced as u64 + 1) as usize;
        while keep > 0
            && keep < self.durable_log.len()
            && self.durable_log[keep].seqno == self.durable_log[keep - 1].seqno
        {
            keep += 1;
        }
        self.durable_log.truncate(keep);
        self.synced = keep;
    }

    fn compare(&mut self) -> Result<(), String> {
        self.report.count("comparisons");
        let violations = invariants::fsck(&*self.tables).map_err(|error| error.to_string())?;
        if let Some(violation) = violations.first() {
            return Err(violation.to_string());
        }
        let (live, model) = (all_rows(&self.tables)?, all_rows(&self.model)?);
        match live.iter().zip(&model).find(|(live, model)| live != model) {
            Some((live, model)) => Err(format!("the tables differ: {live:?}; the model has {model:?}")),
            None if live.len() != model.len() => {
                Err(format!("the tables have {} records; the model has {}", live.len(), model.len()))
            }
            None => Ok(()),
        }
    }
}

/// Draws fault rates. Half of all worlds have low rates and thus run longer; any rate may be zero.
fn rates(entropy: &Entropy) -> EngineFaultRates {
    let scale = if entropy.below(2) == 0 { 1 } else { 5 };
    let rate = || entropy.below(4) * scale;
    EngineFaultRates { conflict: rate() * 10, unavailable: rate(), lost_reply: rate() * 5, crash: rate() }
}

/// Makes an engine that keeps its whole log.
fn new_engine() -> MemoryEngine {
    let engine = MemoryEngine::new(LogCap::UNLIMITED);
    let registered = engine.register(CONSUMER, Seqno(0));
    debug_assert_eq!(registered, Ok(()));
    engine
}

/// Commits a single op on an engine without faults or concurrency.
fn commit(engine: &MemoryEngine, context: &OpContext, op: &Op) -> OpOutcome {
    let mut txn = Staged::new(engine);
    let applied = namespace::apply(&mut txn, context, op)?;
    txn.keep_op(context, op, &applied);
    match engine.commit(txn.into_commit()) {
        Ok(_) => Ok(applied),
        Err(error) => Err(FsError::Corrupt(format!("the model's engine: {error}"))),
    }
}

/// Turns the error of an op itself into an outcome. Errors of the engine stay errors.
fn op_error_as_outcome(error: FsError) -> Result<Vec<OpOutcome>, FsError> {
    match error {
        FsError::Engine(_) | FsError::Conflict => Err(error),
        error => Ok(vec![Err(error)]),
    }
}

fn all_rows(engine: &MemoryEngine) -> Result<Vec<(Vec<u8>, meta::Value)>, String> {
    let rows =
        engine.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).map_err(|error| error.to_string())?;
    Ok(rows.into_iter().map(|(key, row)| (key, row.value)).collect())
}
