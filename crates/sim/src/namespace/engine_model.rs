//! Comparison of an engine with the in-memory engine as a reference model: the same calls give the same answers, tables and log, also when
//! the engine is reopened in between.

#![expect(clippy::unwrap_used, reason = "a failure of the model is a failure of a test")]

use crate::namespace::ops::{OpSource, moment};
use meta::conformance::directory;
use meta::{
    Applied, Commit, CommitError, Condition, Effect, Engine, FsError, Ino, KeyRange, LogCap, LoggedOp,
    MemoryEngine, Merge, Moment, Namespace, Op, OpContext, OpRecord, Origin, Reader, Rows, RunRecord, Seqno,
    Staged, Value, codec, invariants, namespace, schema,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use store::{Entropy, Timestamp};

const CONTEXT: OpContext =
    OpContext { now: Timestamp(1), at: Moment { mount: 1, nanos: 1 }, uid: 0, gid: 0, origin: Origin::Other };

/// The consumer for which the whole log is kept.
const ALL: &str = "all";

/// Makes random calls of the engine that `open` opens, and reopens, and asserts that they have the same answers as in memory.
///
/// # Panics
/// Panics if the engine behaves differently.
pub fn assert_same_answers<E: Engine>(open: impl Fn(LogCap) -> E, seed: u64, calls: usize) {
    let mut pair = EnginePair::new(&open, seed);
    for _ in 0..calls {
        pair = pair.step();
    }
}

/// Applies random ops of a namespace in memory and to the engine that `open` opens, and reopens. Asserts that they have the same outcomes and
/// give byte for byte the same tables and log, and that they violate no invariant.
///
/// # Panics
/// Panics if the engine behaves differently.
pub fn assert_same_namespace<E: Engine>(open: impl Fn(LogCap) -> E, seed: u64, ops: i64) {
    let memory = Arc::new(MemoryEngine::new(LogCap::UNLIMITED));
    memory.register(ALL, Seqno(0)).unwrap();
    let mut engine = open(LogCap::UNLIMITED);
    engine.register(ALL, Seqno(0)).unwrap();
    let namespace = Namespace::new(memory.clone(), &CONTEXT).unwrap();
    let source = OpSource::new(seed);
    for step in 0..ops {
        let now = Timestamp(1000 + step);
        let context = OpContext { now, at: moment(now), ..CONTEXT };
        let op = source.op(&memory, &namespace, context.now);
        catch_up(&engine, &memory);
        let (outcome, expected) = (commit_op(&engine, &context, &op), commit_op(&*memory, &context, &op));
        assert_eq!(outcome, expected, "seed {seed}, step {step}: {op:?}");
        if step % 40 == 39 {
            drop(engine);
            engine = open(LogCap::UNLIMITED);
        }
    }
    catch_up(&engine, &memory);
    assert_eq!(table(&engine), table(&*memory), "seed {seed}");
    assert_eq!(log(&engine), log(&*memory), "seed {seed}");
    assert_eq!(invariants::fsck(&engine).unwrap(), vec![]);
}

/// Applies the ops that the namespace has committed to the in-memory engine by itself, such as leases of inode numbers.
fn catch_up(engine: &dyn Engine, memory: &MemoryEngine) {
    let missing = memory.log_after(engine.head(), usize::MAX).unwrap();
    for logged in missing {
        commit_op(engine, &logged.context, &logged.op).unwrap();
    }
}

/// Commits an op without a [`Namespace`], which would lease inode numbers.
fn commit_op(engine: &dyn Engine, context: &OpContext, op: &Op) -> Result<Applied, FsError> {
    let mut txn = Staged::new(engine);
    let applied = namespace::apply(&mut txn, context, op)?;
    txn.keep_op(context, op, &applied);
    engine.commit(txn.into_commit()).unwrap();
    Ok(applied)
}

fn table(engine: &dyn Reader) -> Rows {
    engine.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).unwrap()
}

fn log(engine: &dyn Engine) -> Vec<LoggedOp> {
    engine.log_after(Seqno(0), usize::MAX).unwrap()
}

/// An engine and the in-memory engine, which get the same calls.
struct EnginePair<'o, E> {
    open: &'o dyn Fn(LogCap) -> E,
    log_cap: LogCap,
    memory: MemoryEngine,
    tested: Option<E>,
    entropy: Entropy,
}

impl<'o, E: Engine> EnginePair<'o, E> {
    fn new(open: &'o dyn Fn(LogCap) -> E, seed: u64) -> Self {
        let log_cap = LogCap { tail_ops: 5, ..LogCap::UNLIMITED };
        let pair = Self {
            open,
            log_cap,
            memory: MemoryEngine::new(log_cap),
            tested: None,
            entropy: Entropy::new(seed),
        };
        pair.reopened()
    }

    fn reopened(mut self) -> Self {
        drop(self.tested.take());
        self.tested = Some((self.open)(self.log_cap));
        self
    }

    fn tested(&self) -> &E {
        self.tested.as_ref().unwrap()
    }

    /// Asserts that both engines give the same answer to a call.
    fn assert_same<T: PartialEq + std::fmt::Debug>(&self, call: impl Fn(&dyn Engine) -> T) {
        assert_eq!(call(self.tested()), call(&self.memory));
    }

    fn step(self) -> Self {
        match self.below(20) {
            0 => return self.reopened(),
            1 => self.ingest(),
            2 => {
                let at = self.seqno();
                self.assert_same(|engine| engine.register("c", at));
            }
            3 => self.assert_same(|engine| engine.forget_consumer("c")),
            4..=5 => {
                let to = self.seqno();
                self.assert_same(|engine| engine.advance("c", to));
            }
            6 => self.assert_same(|engine| engine.cursor("c")),
            7..=8 => {
                let (after, limit) = (self.seqno(), self.below(8) as usize);
                self.assert_same(|engine| engine.log_after(after, limit));
            }
            _ => {
                let commit = self.commit();
                self.assert_same(|engine| engine.commit(commit.clone()).map_err(kind));
            }
        }
        self.assert_same(|engine| (engine.head(), table(engine)));
        self
    }

    fn below(&self, bound: u64) -> u64 {
        self.entropy.below(bound)
    }

    fn random_vec<T>(&self, bound: u64, make: impl Fn() -> T) -> Vec<T> {
        (0..self.below(bound)).map(|_| make()).collect()
    }

    /// Returns a random seqno close to the head.
    fn seqno(&self) -> Seqno {
        Seqno((self.memory.head().0 + 2).saturating_sub(self.below(10)))
    }

    /// Returns one of a few keys, some of them of inodes.
    fn key(&self) -> Vec<u8> {
        match self.below(8) {
            nr @ 0..2 => schema::inode(Ino(nr)),
            nr => vec![b'B' + 3 * nr as u8; 1 + self.below(2) as usize],
        }
    }

    fn value(&self, key: &[u8]) -> Value {
        if key[0] == b'I' && self.below(8) > 0 {
            return codec::encode_inode(&directory(1)).into();
        }
        self.entropy.next_u64().to_be_bytes()[..self.below(9) as usize].into()
    }

    fn condition(&self) -> Condition {
        let key = self.key();
        match self.below(5) {
            0 => Condition::Present { key },
            1 => Condition::Absent { key },
            2 => Condition::RangeEmpty(KeyRange { from: key, to: self.key() }),
            _ => {
                let found = meta::Reader::get(&self.memory, &key).unwrap();
                Condition::Version { key, version: found.map_or(Seqno(1), |found| found.version) }
            }
        }
    }

    fn merge(&self) -> Merge {
        Merge::entry(Timestamp(self.below(50) as i64), self.below(3) as i32 - 1)
    }

    /// Returns a random commit, with each key in one of puts, deletes and merges.
    fn commit(&self) -> Commit {
        let mut commit = Commit { conditions: self.random_vec(3, || self.condition()), ..Commit::default() };
        for key in BTreeMap::from_iter(self.random_vec(5, || (self.key(), ()))).into_keys() {
            match self.below(4) {
                0 => commit.deletes.push(key),
                1 if key[0] == b'I' => commit.merges.push((key, self.merge())),
                _ => commit.puts.push((key.clone(), self.value(&key))),
            }
        }
        commit.ops = self.random_vec(4, || self.op());
        commit
    }

    fn op(&self) -> OpRecord {
        let purge = Op::Purge { ino: Ino(self.entropy.next_u64()) };
        OpRecord { context: CONTEXT, op: purge, effect: Effect::default() }
    }

    /// Adds a run of a few rows, or of enough rows for a table file of its own.
    fn ingest(&self) {
        let count = if self.below(8) == 0 { 5000 } else { 1 + self.below(3) };
        let tag = self.key();
        let key = |nr: u64| [&tag, &nr.to_be_bytes()[self.below(2) as usize * 7..]].concat();
        let row = |nr: u64| (self.below(8) > 0).then(|| nr.to_be_bytes());
        let rows = BTreeMap::from_iter((0..count).map(|nr| (key(nr), row(nr))));
        let ops = self.random_vec(if count == 5000 { 3000 } else { 4 }, || self.op());
        let merges = self.random_vec(2, || (schema::inode(Ino(self.below(2))), self.merge()));
        let record = RunRecord { conditions: self.random_vec(2, || self.condition()), merges };
        let is_merged = |key: &Vec<u8>| record.merges.iter().any(|(merged, _)| merged == key);
        self.assert_same(|engine| {
            let mut run = engine.begin_run().unwrap();
            for (key, row) in rows.iter().filter(|(key, _)| !is_merged(key)) {
                match row {
                    Some(row) => run.put(key, row).unwrap(),
                    None => run.delete(key).unwrap(),
                }
            }
            ops.iter().for_each(|record| run.log(record).unwrap());
            run.finish().unwrap().ingest(&record).map_err(kind)
        });
    }
}

/// Returns the kind of an error. Engines may differ in which of several errors they report.
fn kind(error: CommitError) -> &'static str {
    match error {
        CommitError::Conflict => "conflict",
        CommitError::Engine(_) => "error",
    }
}
