//! The world of a seed: its clients, its merges, and its checks.

use super::draw::Draw;
use super::job::{Job, text};
use crate::namespace::faulty_engine::{EngineFaultRates, FaultyEngine};
use crate::namespace::ops::moment;
use crate::{Failure, Report, SimClock};
use batch::{MergeError, Merged, Proof, Rejected, SealedBatch};
use meta::namespace::{self, read_content};
use meta::{
    Engine, EngineError, Ino, Limits, LogCap, MemoryEngine, Namespace, Op, OpContext, Origin, Reader, Seqno,
    Staged, Value, invariants, schema,
};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use store::{Clock, Entropy, ObjectKey};

const STEPS: u64 = 150;
const JOBS_MAX: usize = 4;

/// Maximum number of attempts of a merge. The last one has no faults.
const ATTEMPTS_MAX: u32 = 12;

/// The log consumer that keeps the whole log.
const CONSUMER: &str = "all";

/// Prefix of the keys of objects of clients without a batch.
const PLAIN: &[u8] = b".tenon/inodes/";

pub(super) struct BatchWorld {
    seed: u64,
    step: u64,
    clock: SimClock,
    entropy: Arc<Entropy>,
    rates: EngineFaultRates,
    tables: Arc<MemoryEngine>,
    names: Namespace,
    jobs: Vec<Job>,
    /// Number of batches so far.
    begun: u64,
    /// Keys of the objects in the bucket.
    objects: BTreeSet<ObjectKey>,
    folder: tempfile::TempDir,
    report: Report,
}

impl BatchWorld {
    pub(super) fn new(seed: u64) -> Result<Self, Failure> {
        Self::open(seed).map_err(|what| Failure { world: "batches", seed, step: 0, what })
    }

    fn open(seed: u64) -> Result<Self, String> {
        let (entropy, clock) = (Arc::new(Entropy::new(seed)), SimClock::default());
        let tables = Arc::new(MemoryEngine::new(LogCap::UNLIMITED));
        tables.register(CONSUMER, Seqno(0)).map_err(text)?;
        let names = Namespace::new(tables.clone() as Arc<dyn Engine>, &context(&clock, 0)).map_err(text)?;
        Ok(Self {
            seed,
            step: 0,
            rates: rates(&entropy),
            clock,
            entropy,
            tables,
            names,
            jobs: Vec::new(),
            begun: 0,
            objects: BTreeSet::new(),
            folder: tempfile::tempdir().map_err(text)?,
            report: Report::default(),
        })
    }

    pub(super) fn run(mut self) -> Result<Report, Failure> {
        let failure =
            |world: &Self, what| Failure { world: "batches", seed: world.seed, step: world.step, what };
        while self.step < STEPS {
            self.step += 1;
            self.clock.advance(Duration::from_nanos(1 + self.entropy.below(1000)));
            self.step_once().map_err(|what| failure(&self, what))?;
        }
        while !self.jobs.is_empty() {
            self.step += 1;
            self.end(0).map_err(|what| failure(&self, what))?;
        }
        Ok(self.report)
    }

    fn step_once(&mut self) -> Result<(), String> {
        let job = self.entropy.below(self.jobs.len().max(1) as u64) as usize;
        match self.entropy.below(40) {
            0..=2 if self.jobs.len() < JOBS_MAX => self.begin(),
            3 if job < self.jobs.len() => self.kill(job),
            4 if job < self.jobs.len() => self.end(job),
            5 if job < self.jobs.len() && self.entropy.below(4) == 0 => self.discard(job),
            6 if self.entropy.below(4) == 0 => self.set_quota(),
            7..=14 => {
                self.act_directly();
                Ok(())
            }
            _ if job < self.jobs.len() => {
                let op = self.jobs[job].act(&self.entropy, self.clock.now());
                self.note_objects(op);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self) -> Result<(), String> {
        let record = batch::begin(&self.names, &context(&self.clock, 0), Ino::ROOT).map_err(text)?;
        self.begun += 1;
        let dir = self.folder.path().join(self.begun.to_string());
        self.jobs.push(Job::begin(&dir, record, self.tables.snapshot().map_err(text)?)?);
        self.report.count("batches");
        Ok(())
    }

    fn kill(&mut self, at: usize) -> Result<(), String> {
        let job = self.jobs.remove(at).kill(self.tables.snapshot().map_err(text)?)?;
        self.jobs.push(job);
        self.report.count("kills");
        Ok(())
    }

    /// Carries out an op of one of the two users who change the volume without a batch.
    fn act_directly(&mut self) {
        let user = self.entropy.below(2) as u32;
        let op = act(&self.entropy, &self.names, &context(&self.clock, user));
        self.note_objects(op);
    }

    fn note_objects(&mut self, op: Option<Op>) {
        if let Some(Op::Splice { content, .. }) = op {
            self.report.count("writes");
            self.objects.extend(content.into_iter().filter_map(|extent| extent.object.key));
        }
    }

    /// Limits the files of the volume to some more than it has, or removes the limit.
    fn set_quota(&self) -> Result<(), String> {
        let set = |limits| self.names.set_quota(&context(&self.clock, 0), Ino::ROOT, limits).map_err(text);
        set(Some(Limits { bytes: None, files: Some(0) }))?;
        let used = self.names.quota(Ino::ROOT).map_err(text)?.map_or(0, |quota| quota.used.files);
        let files = used as u64 + self.entropy.below(8);
        set((self.entropy.below(2) == 0).then_some(Limits { bytes: None, files: Some(files) }))
    }

    fn discard(&mut self, at: usize) -> Result<(), String> {
        let job = self.jobs.remove(at);
        let id = job.record.id();
        self.names.commit(&context(&self.clock, 0), &Op::SetBatch { id, record: None }).map_err(text)?;
        let prefix = job.prefix();
        self.objects.retain(|key| !key.as_bytes().starts_with(&prefix));
        self.report.count("discarded batches");
        self.check_objects()
    }

    /// Ends a batch: seals and merges it, with faults and with another client that commits meanwhile, until it is merged.
    fn end(&mut self, at: usize) -> Result<(), String> {
        let mut job = self.jobs.remove(at);
        for attempt in 1..=ATTEMPTS_MAX {
            let sealed = job.engine.seal().map_err(text)?;
            let wanted = used_objects(&*job.engine, &job.prefix())?;
            let outcome = self.merge(&job, &sealed, attempt == ATTEMPTS_MAX);
            self.check_tables()?;
            match outcome {
                Ok(merged) => return self.check_merged(&job, &sealed, &merged, &wanted),
                Err(MergeError::Rejected(Rejected::Quota(_))) => {
                    self.report.count("batches beyond a quota");
                    self.names.set_quota(&context(&self.clock, 0), Ino::ROOT, None).map_err(text)?;
                }
                Err(MergeError::Engine(error) | MergeError::Rejected(Rejected::Engine(error))) => {
                    self.note_fault(&error)?
                }
                Err(MergeError::Busy) => self.report.count("busy merges"),
                Err(error) => return Err(format!("the merge failed: {error}")),
            }
            if self.entropy.below(2) == 0 {
                drop(sealed);
                job = job.kill(self.tables.snapshot().map_err(text)?)?;
            }
        }
        Err("the batch is not merged after all attempts".into())
    }

    fn merge(&self, job: &Job, sealed: &SealedBatch, is_last: bool) -> Result<Merged, MergeError> {
        let none = EngineFaultRates { conflict: 0, unavailable: 0, lost_reply: 0, crash: 0 };
        let rates = if is_last { none } else { self.rates };
        let engine = FaultyEngine::new(self.tables.clone(), self.entropy.next_u64(), rates);
        if !is_last && self.entropy.below(3) == 0 {
            let (entropy, context) = (self.entropy.clone(), context(&self.clock, 0));
            engine.set_rival(Box::new(move |tables| {
                if let Ok(names) = Namespace::new(tables.clone() as Arc<dyn Engine>, &context) {
                    // The rival writes nothing: its objects would be unknown to the world.
                    let op = draw(&entropy, &names, 0).filter(|op| !matches!(op, Op::Splice { .. }));
                    let _ = op.map(|op| names.commit(&context, &op));
                }
            }));
        }
        let is_replay = job.is_stale || self.entropy.below(4) == 0;
        let proof = if is_replay { Proof::Replay } else { Proof::Reduced };
        batch::merge(&engine, sealed, &job.terms(self.clock.now()), self.folder.path(), proof)
    }

    fn note_fault(&mut self, error: &EngineError) -> Result<(), String> {
        self.report.count(match error {
            EngineError::Unavailable(_) => "failed merges",
            EngineError::Uncertain(_) => "lost replies and crashes",
            error => return Err(format!("the merge failed: {error}")),
        });
        Ok(())
    }

    fn check_merged(
        &mut self,
        job: &Job,
        sealed: &SealedBatch,
        merged: &Merged,
        wanted: &BTreeSet<ObjectKey>,
    ) -> Result<(), String> {
        let id = job.record.id();
        let used = used_objects(&*self.tables, &job.prefix())?;
        match &merged.shared {
            None => self.report.count("merges found done"),
            Some(shared) => {
                if !job.was_stale
                    && let Some(lost) = wanted.difference(&used).next()
                {
                    return Err(format!(
                        "a content of batch {id} is lost: {lost}\n{}",
                        ops_of(sealed, merged)
                    ));
                }
                self.delete_unused(job, shared)?;
            }
        }
        self.check_objects()?;
        let recorded = namespace::read_refused_ops(&*self.tables, id, 0, usize::MAX).map_err(text)?;
        let mut ops = 0;
        sealed.for_each_op(|_, _, _| ops += 1).map_err(text)?;
        if recorded.iter().any(|(index, _)| *index >= ops) {
            return Err(format!("batch {id} of {ops} ops has a record of another op"));
        }
        if merged.earlier.is_none() {
            let refused: Vec<u64> = merged.refused.iter().map(|refused| refused.index).collect();
            if recorded.iter().map(|(index, _)| *index).ne(refused.iter().copied()) {
                return Err(format!(
                    "batch {id} has records of other refused ops than it should: {refused:?}"
                ));
            }
            self.report.count(match merged.proof {
                Some(Proof::Reduced) => "bulk merges",
                _ => "replayed merges",
            });
        }
        self.report.add_count("refused ops", recorded.len() as u64);
        self.report.add_count("rescues", recorded.iter().filter(|(_, op)| op.kept.is_some()).count() as u64);
        Ok(())
    }

    /// Deletes the objects of a merged batch that no file uses, as `vfs` does.
    fn delete_unused(&mut self, job: &Job, shared: &BTreeSet<ObjectKey>) -> Result<(), String> {
        let prefix = job.prefix();
        let mut unused = BTreeSet::new();
        for key in self.objects.iter().filter(|key| key.as_bytes().starts_with(&prefix)) {
            let is_used = shared.contains(key)
                || owner(key, &prefix).is_some_and(|ino| refers_to(&self.tables, ino, key));
            if !is_used {
                unused.insert(key.clone());
            }
        }
        self.report.add_count("unused objects", unused.len() as u64);
        self.objects.retain(|key| !unused.contains(key));
        Ok(())
    }

    /// Fails unless all objects to which files refer exist.
    fn check_objects(&self) -> Result<(), String> {
        let used = used_objects(&*self.tables, b"")?;
        match used.difference(&self.objects).next() {
            Some(missing) => Err(format!("a file refers to an object that was deleted: {missing}")),
            None => Ok(()),
        }
    }

    /// Fails unless the tables are the effect of the log, and violate no invariant.
    fn check_tables(&self) -> Result<(), String> {
        let model = MemoryEngine::new(LogCap::UNLIMITED);
        for logged in self.tables.log_after(Seqno(0), usize::MAX).map_err(text)? {
            let mut txn = Staged::new(&model);
            let applied = namespace::apply(&mut txn, &logged.context, &logged.op)
                .map_err(|error| format!("the model refuses the logged op {:?}: {error}", logged.op))?;
            txn.keep_op(&logged.context, &logged.op, &applied);
            model.commit(txn.into_commit()).map_err(text)?;
        }
        let (made, expected) = (rows(&*self.tables)?, rows(&model)?);
        if let Some((made, expected)) = made.iter().zip(&expected).find(|(made, expected)| made != expected) {
            return Err(format!("the tables differ: {made:?}; the model has {expected:?}"));
        }
        if made.len() != expected.len() {
            return Err(format!("the tables have {} records; the model has {}", made.len(), expected.len()));
        }
        match invariants::fsck(&*self.tables).map_err(text)?.first() {
            Some(violation) => Err(violation.to_string()),
            None => Ok(()),
        }
    }
}

fn context(clock: &SimClock, user: u32) -> OpContext {
    let now = clock.now();
    OpContext { now, at: moment(now), uid: user, gid: user, origin: Origin::Other }
}

fn draw(entropy: &Entropy, names: &Namespace, user: u32) -> Option<Op> {
    Draw { entropy, names, prefix: PLAIN, has_packs: false, user }.op()
}

/// Carries out a random op. Returns it if it succeeded.
fn act(entropy: &Entropy, names: &Namespace, context: &OpContext) -> Option<Op> {
    let op = draw(entropy, names, context.uid)?;
    names.commit(context, &op).is_ok().then_some(op)
}

/// Returns the ops of a batch, one a line, with the reasons of those that were refused.
fn ops_of(sealed: &SealedBatch, merged: &Merged) -> String {
    let mut lines = Vec::new();
    let read = sealed.for_each_op(|index, _, op| {
        let refused = merged.refused.iter().find(|refused| refused.index == index);
        lines.push(match refused {
            Some(refused) => format!("{index} {op:?}: {}, kept {:?}", refused.why, refused.kept),
            None => format!("{index} {op:?}"),
        });
    });
    lines.extend(read.err().map(|error| error.to_string()));
    lines.join("\n")
}

/// Returns the objects below a prefix to which inodes refer.
fn used_objects(tables: &dyn Reader, prefix: &[u8]) -> Result<BTreeSet<ObjectKey>, String> {
    let range = schema::inodes();
    let (from, to) = range.bounds();
    let mut used = BTreeSet::new();
    for (key, _) in tables.scan(from, to, usize::MAX).map_err(text)? {
        let ino = schema::ino_of(&key).map_err(text)?;
        let Some((_, content)) = read_content(tables, ino).map_err(text)? else { continue };
        let keys = content.into_iter().filter_map(|extent| extent.object.key);
        used.extend(keys.filter(|key| key.as_bytes().starts_with(prefix)));
    }
    Ok(used)
}

/// Returns the inode in the key of an object below a prefix; `None` for a pack.
fn owner(key: &ObjectKey, prefix: &[u8]) -> Option<Ino> {
    let name = std::str::from_utf8(key.as_bytes().strip_prefix(prefix)?).ok()?;
    u64::from_str_radix(name.split_once('-')?.0, 16).ok().map(Ino)
}

fn refers_to(tables: &MemoryEngine, ino: Ino, key: &ObjectKey) -> bool {
    let content = read_content(tables, ino).ok().flatten();
    content.is_some_and(|(_, content)| content.iter().any(|extent| extent.object.key.as_ref() == Some(key)))
}

/// Returns all records, except for those of batches, which count ops.
fn rows(tables: &dyn Reader) -> Result<Vec<(Vec<u8>, Value)>, String> {
    let rows = tables.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).map_err(text)?;
    let rows = rows.into_iter().filter(|(key, _)| !schema::is_of_batch(key));
    Ok(rows.map(|(key, row)| (key, row.value)).collect())
}

/// Draws fault rates. A merge makes hundreds of calls, each of which may crash.
fn rates(entropy: &Entropy) -> EngineFaultRates {
    let rate = |max| entropy.below(max);
    EngineFaultRates { conflict: rate(400), unavailable: rate(6), lost_reply: rate(200), crash: rate(6) }
}
