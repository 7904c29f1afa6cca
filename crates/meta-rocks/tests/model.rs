//! The same calls on the memory engine, which is the model: same answers, same tables, same log, whatever is opened anew
//! between.

use crate::fixture::{ALL, CTX, WHOLE_LOG, commit_op, directory, log, open, options, table};
use meta::{
    BatchRecord, Commit, CommitError, Condition, Ctx, Engine, Ino, KeyRange, LogCap, MemoryEngine, Merge,
    Namespace, Op, Seqno, SortedRun, Value, codec, invariants, schema,
};
use meta_rocks::{RocksEngine, RocksOptions};
use sim::namespace::ops::{OpSource, moment};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use store::{Entropy, Timestamp};

/// Two engines that are asked the same.
struct Twins<'a> {
    path: &'a Path,
    log_cap: LogCap,
    memory: MemoryEngine,
    rocks: Option<RocksEngine>,
    entropy: Entropy,
}

impl<'a> Twins<'a> {
    fn new(path: &'a Path, seed: u64) -> Self {
        let log_cap = LogCap { bytes_max: u64::MAX, tail_ops: 5 };
        let twins = Self {
            path,
            log_cap,
            memory: MemoryEngine::new(log_cap),
            rocks: None,
            entropy: Entropy::new(seed),
        };
        twins.opened()
    }

    fn opened(mut self) -> Self {
        drop(self.rocks.take());
        let options = RocksOptions { log_cap: self.log_cap, ..options() };
        self.rocks = Some(RocksEngine::open(self.path, options).unwrap());
        self
    }

    fn rocks(&self) -> &RocksEngine {
        self.rocks.as_ref().unwrap()
    }

    /// Both engines give the same answer to a call.
    fn same<T: PartialEq + std::fmt::Debug>(&self, call: impl Fn(&dyn Engine) -> T) {
        assert_eq!(call(self.rocks()), call(&self.memory));
    }

    fn step(self) -> Self {
        match self.below(20) {
            0 => return self.opened(),
            1 => self.ingest(),
            2 => {
                let at = self.seqno();
                self.same(|engine| engine.register("c", at));
            }
            3 => self.same(|engine| engine.forget_consumer("c")),
            4..=5 => {
                let to = self.seqno();
                self.same(|engine| engine.advance("c", to));
            }
            6 => self.same(|engine| engine.cursor("c")),
            7..=8 => {
                let (after, limit) = (self.seqno(), self.below(8) as usize);
                self.same(|engine| engine.log_after(after, limit));
            }
            _ => {
                let commit = self.commit();
                self.same(|engine| engine.commit(commit.clone()).map_err(kind));
            }
        }
        self.same(|engine| (engine.head(), table(engine)));
        self
    }

    fn below(&self, bound: u64) -> u64 {
        self.entropy.below(bound)
    }

    fn many<T>(&self, bound: u64, make: impl Fn() -> T) -> Vec<T> {
        (0..self.below(bound)).map(|_| make()).collect()
    }

    /// Mostly one of the latest.
    fn seqno(&self) -> Seqno {
        Seqno((self.memory.head().0 + 2).saturating_sub(self.below(10)))
    }

    /// Few keys, some of inodes.
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

    /// A key is in one of puts, deletes and merges.
    fn commit(&self) -> Commit {
        let mut commit = Commit { conditions: self.many(3, || self.condition()), ..Commit::default() };
        for key in BTreeMap::from_iter(self.many(5, || (self.key(), ()))).into_keys() {
            match self.below(4) {
                0 => commit.deletes.push(key),
                1 if key[0] == b'I' => commit.merges.push((key, self.merge())),
                _ => commit.puts.push((key.clone(), self.value(&key))),
            }
        }
        commit.ops = self.many(4, || self.op());
        commit
    }

    fn op(&self) -> (Ctx, Op) {
        crate::fixture::purge(self.entropy.next_u64())
    }

    /// A run of few rows, or of so many that it becomes a file.
    fn ingest(&self) {
        let count = if self.below(8) == 0 { 5000 } else { 1 + self.below(3) };
        let tag = self.key();
        let key = |nr: u64| [&tag, &nr.to_be_bytes()[self.below(2) as usize * 7..]].concat();
        let rows = BTreeMap::from_iter((0..count).map(|nr| (key(nr), Value::from(nr.to_be_bytes()))));
        let run = SortedRun::new(rows.into_iter().collect()).unwrap();
        let merges = self.many(2, || (schema::inode(Ino(self.below(2))), self.merge()));
        let conditions = self.many(2, || self.condition());
        let record = BatchRecord { conditions, merges, ops: self.many(3, || self.op()) };
        self.same(|engine| engine.ingest(run.clone(), record.clone()).map_err(kind));
    }
}

/// Which of several errors is told is the engine's affair.
fn kind(error: CommitError) -> &'static str {
    match error {
        CommitError::Conflict => "conflict",
        CommitError::Engine(_) => "error",
    }
}

#[test]
fn any_calls_have_the_same_answers() {
    for seed in 0..40 {
        let folder = tempfile::tempdir().unwrap();
        let mut twins = Twins::new(folder.path(), seed);
        for _ in 0..150 {
            twins = twins.step();
        }
    }
}

/// Random ops of a namespace: same outcomes, byte for byte the same tables and log, and no broken invariant.
#[test]
fn a_namespace_is_the_same() {
    for seed in 0..60 {
        let folder = tempfile::tempdir().unwrap();
        let memory = Arc::new(MemoryEngine::new(WHOLE_LOG));
        memory.register(ALL, Seqno(0)).unwrap();
        let mut rocks = crate::fixture::open_with_log(folder.path());
        let namespace = Namespace::new(memory.clone(), &CTX).unwrap();
        let source = OpSource::new(seed);
        for step in 0..100 {
            let now = Timestamp(1000 + step);
            let ctx = Ctx { now, at: moment(now), ..CTX };
            let op = source.op(&memory, &namespace, ctx.now);
            follow(&rocks, &memory);
            let (told, expected) = (commit_op(&rocks, &ctx, &op), commit_op(&*memory, &ctx, &op));
            assert_eq!(told, expected, "seed {seed}, step {step}: {op:?}");
            if step % 40 == 39 {
                drop(rocks);
                rocks = open(folder.path());
            }
        }
        follow(&rocks, &memory);
        assert_eq!(table(&rocks), table(&*memory), "seed {seed}");
        assert_eq!(log(&rocks), log(&*memory), "seed {seed}");
        assert_eq!(invariants::fsck(&rocks).unwrap(), vec![]);
    }
}

/// The namespace takes inode numbers by itself; the other side does as its log says.
fn follow(rocks: &RocksEngine, memory: &MemoryEngine) {
    let missing = memory.log_after(rocks.head(), usize::MAX).unwrap();
    for logged in missing {
        commit_op(rocks, &logged.ctx, &logged.op).unwrap();
    }
}
