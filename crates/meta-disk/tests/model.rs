//! Comparison with the in-memory engine as a reference model: the same calls give the same answers, tables and log, also when the
//! engine on disk is reopened in between.

use crate::fixture::{ALL, CONTEXT, WHOLE_LOG, commit_op, directory, log, open, options, table};
use meta::{
    Commit, CommitError, Condition, Engine, Ino, KeyRange, LogCap, MemoryEngine, Merge, Namespace, OpContext,
    OpRecord, RunRecord, Seqno, Value, codec, invariants, schema,
};
use meta_disk::{DiskEngine, EngineOptions};
use sim::namespace::ops::{OpSource, moment};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use store::{Entropy, Timestamp};

on_each_layer! {
    random_calls_have_the_same_answers
    a_namespace_behaves_the_same
}

/// An engine on disk and the in-memory engine, which get the same calls.
struct EnginePair<'a> {
    path: &'a Path,
    log_cap: LogCap,
    memory: MemoryEngine,
    disk: Option<DiskEngine>,
    entropy: Entropy,
}

impl<'a> EnginePair<'a> {
    fn new(path: &'a Path, seed: u64) -> Self {
        let log_cap = LogCap { tail_ops: 5, ..LogCap::UNLIMITED };
        let pair = Self {
            path,
            log_cap,
            memory: MemoryEngine::new(log_cap),
            disk: None,
            entropy: Entropy::new(seed),
        };
        pair.reopened()
    }

    fn reopened(mut self) -> Self {
        drop(self.disk.take());
        let options = EngineOptions { log_cap: self.log_cap, ..options() };
        self.disk = Some(DiskEngine::open(self.path, options).unwrap());
        self
    }

    fn disk(&self) -> &DiskEngine {
        self.disk.as_ref().unwrap()
    }

    /// Asserts that both engines give the same answer to a call.
    fn assert_same<T: PartialEq + std::fmt::Debug>(&self, call: impl Fn(&dyn Engine) -> T) {
        assert_eq!(call(self.disk()), call(&self.memory));
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
        crate::fixture::purge(self.entropy.next_u64())
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

fn random_calls_have_the_same_answers() {
    for seed in 0..40 {
        let folder = tempfile::tempdir().unwrap();
        let mut pair = EnginePair::new(folder.path(), seed);
        for _ in 0..150 {
            pair = pair.step();
        }
    }
}

/// Random ops of a namespace give the same outcomes, byte for byte the same tables and log, and violate no invariant.
fn a_namespace_behaves_the_same() {
    for seed in 0..60 {
        let folder = tempfile::tempdir().unwrap();
        let memory = Arc::new(MemoryEngine::new(WHOLE_LOG));
        memory.register(ALL, Seqno(0)).unwrap();
        let mut disk = crate::fixture::open_with_log(folder.path());
        let namespace = Namespace::new(memory.clone(), &CONTEXT).unwrap();
        let source = OpSource::new(seed);
        for step in 0..100 {
            let now = Timestamp(1000 + step);
            let context = OpContext { now, at: moment(now), ..CONTEXT };
            let op = source.op(&memory, &namespace, context.now);
            catch_up(&disk, &memory);
            let (outcome, expected) = (commit_op(&disk, &context, &op), commit_op(&*memory, &context, &op));
            assert_eq!(outcome, expected, "seed {seed}, step {step}: {op:?}");
            if step % 40 == 39 {
                drop(disk);
                disk = open(folder.path());
            }
        }
        catch_up(&disk, &memory);
        assert_eq!(table(&disk), table(&*memory), "seed {seed}");
        assert_eq!(log(&disk), log(&*memory), "seed {seed}");
        assert_eq!(invariants::fsck(&disk).unwrap(), vec![]);
    }
}

/// Applies the ops that the namespace has committed to the in-memory engine by itself, such as leases of inode numbers.
fn catch_up(disk: &DiskEngine, memory: &MemoryEngine) {
    let missing = memory.log_after(disk.head(), usize::MAX).unwrap();
    for logged in missing {
        commit_op(disk, &logged.context, &logged.op).unwrap();
    }
}
