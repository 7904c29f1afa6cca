//! Merges of batches with what others have done meanwhile.

use crate::fixture::{Ops, USER, Volume, context, create, is_permitted, name, values};
use batch::{JobOptions, MergeError, Merged};
use meta::{
    AttrChanges, Commit, CommitError, Engine, EngineError, FsError, Ino, KeyRange, Kind, Limits, LogCap,
    LogError, LoggedOp, MemoryEngine, Op, OpRecord, Reader, Rows, Run, RunBuilder, RunRecord, Seqno,
    Versioned,
};
use meta_disk::{DiskEngine, EngineOptions, TableLayer};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Jobs and an interactive client change the same directories. Every op of a batch is added or refused, and the tables are the effect of
/// the ops in the order of the log.
#[test]
fn merges_have_a_serial_order() {
    let (mut bulk, mut partial, mut refused_ops) = (0, 0, 0);
    for seed in 0..150 {
        let volume = Volume::in_memory();
        let shared = volume.create(USER, volume.home, "shared", Kind::Directory, 0o755);
        let mut interactive = Ops::new(seed, USER, &[shared, volume.home]);
        let act = |interactive: &mut Ops, steps: i64| {
            for step in 0..steps {
                let op = interactive.next(|dir| volume.namespace.allocate(dir, 1)[0]);
                if volume.namespace.commit(&context(USER, 20 + step), &op).is_ok() {
                    interactive.succeeded(&op);
                }
            }
        };
        act(&mut interactive, 30);
        let mut jobs = Vec::new();
        for number in 0..2 {
            let (mut job, lease) = volume.begin(&format!("job{number}"), JobOptions::default());
            let mut ops = Ops::new(seed * 2 + number, USER, &[shared, volume.home]);
            let mut applied = 0;
            for step in 0..80 {
                let op = ops.next(|dir| job.allocate(dir).unwrap());
                let context = context(USER, 200 + step);
                if is_permitted(&job, context.now, &op) && job.apply(&context, &op).is_ok() {
                    ops.succeeded(&op);
                    applied += 1;
                }
            }
            jobs.push((job.seal().unwrap(), lease, applied));
        }
        for (batch, lease, applied) in jobs {
            if seed % 3 > 0 {
                act(&mut interactive, seed as i64 % 7);
            }
            let before = volume.logged();
            let merged = volume.merge(&batch, &lease).unwrap();
            assert_eq!(merged.accepted + merged.refused.len() as u64, applied, "seed {seed}");
            let records = 1 + merged.refused.len();
            assert_eq!(volume.logged() - before, merged.accepted as usize + records);
            volume.assert_serial();
            bulk += u32::from(merged.refused.is_empty());
            partial += u32::from(!merged.refused.is_empty() && merged.accepted > 0);
            refused_ops += merged.refused.len();
            let logged = volume.logged();
            let again = volume.merge(&batch, &lease).unwrap();
            let outcome = again.earlier.expect("a batch is merged once");
            assert_eq!((outcome.accepted, volume.logged()), (merged.accepted, logged));
        }
    }
    assert!(
        bulk > 40 && partial > 50 && refused_ops > 500,
        "{bulk} bulk, {partial} partial, {refused_ops} refused"
    );
}

type Hook = Box<dyn FnOnce(&MemoryEngine) + Send>;

/// A memory engine that runs a hook once, after a batch was replayed and before its run is added.
#[derive(Default)]
pub(crate) struct Hooked {
    inner: MemoryEngine,
    hook: Mutex<Option<Hook>>,
    runs: AtomicUsize,
    /// Whether the outcomes of added runs are lost.
    is_uncertain: AtomicBool,
}

/// A run whose outcome is lost.
struct UncertainRun<'e>(Box<dyn RunBuilder<'e> + 'e>);

/// A durable run whose outcome is lost.
struct UncertainFinished<'e>(Box<dyn Run + 'e>);

impl<'e> RunBuilder<'e> for UncertainRun<'e> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        self.0.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), EngineError> {
        self.0.delete(key)
    }

    fn log(&mut self, record: &OpRecord) -> Result<(), EngineError> {
        self.0.log(record)
    }

    fn finish(self: Box<Self>) -> Result<Box<dyn Run + 'e>, EngineError> {
        Ok(Box::new(UncertainFinished(self.0.finish()?)))
    }
}

impl Run for UncertainFinished<'_> {
    fn ingest(&mut self, record: &RunRecord) -> Result<Seqno, CommitError> {
        self.0.ingest(record)?;
        Err(EngineError::Uncertain("on demand".into()).into())
    }
}

impl Hooked {
    /// Has the outcomes of added runs lost.
    pub(crate) fn lose_outcomes(&self, are_lost: bool) {
        self.is_uncertain.store(are_lost, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Reader for Hooked {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        self.inner.get(key)
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        self.inner.multi_get(keys)
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        self.inner.scan(from, to, limit)
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        self.inner.last(range)
    }
}

impl Engine for Hooked {
    fn snapshot_with_head(&self) -> Result<(Arc<dyn Reader>, Seqno), EngineError> {
        self.inner.snapshot_with_head()
    }

    fn commit(&self, commit: Commit) -> Result<Seqno, CommitError> {
        self.inner.commit(commit)
    }

    fn log_after(&self, cursor: Seqno, limit: usize) -> Result<Vec<LoggedOp>, LogError> {
        self.inner.log_after(cursor, limit)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.inner.sync()
    }

    fn begin_run(&self) -> Result<Box<dyn RunBuilder<'_> + '_>, EngineError> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        let hook = self.hook.lock().unwrap().take();
        hook.into_iter().for_each(|hook| hook(&self.inner));
        let run = self.inner.begin_run()?;
        Ok(match self.is_uncertain.load(Ordering::SeqCst) {
            true => Box::new(UncertainRun(run)),
            false => run,
        })
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

impl Volume<Hooked> {
    pub(crate) fn hooked() -> Self {
        let inner = MemoryEngine::new(LogCap::UNLIMITED);
        Self::over(Arc::new(Hooked { inner, ..Hooked::default() }))
    }
}

/// Merges a batch that creates `a`, `b` and `c` in the home, while another client's op is committed between replay and commit. Returns the
/// result and the number of replays.
fn merged_while(op: impl FnOnce(&Volume<Hooked>) -> Op) -> (Merged, usize) {
    let volume = Volume::hooked();
    let (mut job, lease) = volume.begin("job", JobOptions::default());
    for text in ["a", "b", "c"] {
        let ino = job.allocate(volume.home).unwrap();
        job.apply(&context(USER, 100), &create(USER, volume.home, text, ino, Kind::File, 0o644)).unwrap();
    }
    let batch = job.seal().unwrap();
    let op = op(&volume);
    let hook =
        move |engine: &MemoryEngine| drop(crate::fixture::commit_op(engine, &context(0, 110), &op).unwrap());
    *volume.engine.hook.lock().unwrap() = Some(Box::new(hook));
    let merged = volume.merge(&batch, &lease).unwrap();
    volume.assert_serial();
    (merged, volume.engine.runs.load(Ordering::SeqCst))
}

#[test]
fn a_change_of_another_name_or_directory_costs_no_replay() {
    let other_name = |volume: &Volume<Hooked>| {
        create(USER, volume.home, "z", volume.namespace.allocate(volume.home, 1)[0], Kind::File, 0o644)
    };
    let other_dir = |volume: &Volume<Hooked>| {
        create(0, volume.foreign, "a", volume.namespace.allocate(volume.foreign, 1)[0], Kind::File, 0o644)
    };
    for (merged, replays) in [merged_while(other_name), merged_while(other_dir)] {
        assert_eq!((merged.accepted, merged.refused, replays), (3, vec![], 1));
    }
}

#[test]
fn a_colliding_name_refuses_one_op() {
    let (merged, replays) = merged_while(|volume| {
        create(USER, volume.home, "b", volume.namespace.allocate(volume.home, 1)[0], Kind::File, 0o644)
    });
    assert_eq!((merged.accepted, replays), (2, 2));
    let refused: Vec<_> = merged.refused.into_iter().map(|refused| (refused.index, refused.why)).collect();
    assert_eq!(refused, vec![(1, FsError::Exists.into())]);
}

#[test]
fn a_chmod_that_forbids_the_ops_refuses_them() {
    let chmod = |mode| {
        move |volume: &Volume<Hooked>| {
            let changes = AttrChanges { mode: Some(mode), ..AttrChanges::default() };
            Op::SetAttr { ino: volume.home, changes }
        }
    };
    let (merged, replays) = merged_while(chmod(0o555));
    assert_eq!((merged.accepted, merged.refused.len(), replays), (0, 3, 2));
    let (merged, replays) = merged_while(chmod(0o700));
    assert_eq!(
        (merged.accepted, merged.refused.len(), replays),
        (3, 0, 2),
        "a compatible chmod refuses nothing"
    );
}

#[test]
fn a_quota_holds_for_batch_and_others_together() {
    let volume = Volume::in_memory();
    let limits = Limits { bytes: None, files: Some(200) };
    volume.namespace.set_quota(&context(0, 5), volume.home, Some(limits)).unwrap();
    let (mut job, lease) = volume.begin("job", JobOptions::default());
    let mut fitting = 0;
    for nr in 0..300 {
        let ino = job.allocate(volume.home).unwrap();
        let op = create(USER, volume.home, &format!("f{nr}"), ino, Kind::File, 0o644);
        match job.apply(&context(USER, 100), &op) {
            Ok(_) => fitting += 1,
            Err(error) => assert_eq!(error, FsError::OverQuota),
        }
    }
    assert_eq!(fitting, 200);
    let batch = job.seal().unwrap();
    for nr in 0..20 {
        volume.create(USER, volume.home, &format!("g{nr}"), Kind::File, 0o644);
    }
    let merged = volume.merge(&batch, &lease).unwrap();
    assert_eq!((merged.accepted, merged.refused.len()), (180, 20));
    assert_eq!(volume.namespace.quota(volume.home).unwrap().unwrap().used.files, 200);
    volume.assert_serial();
}

/// A batch of many directories is added to an engine on disk, survives reopening, and its log is read page by page.
#[test]
fn a_large_batch_is_added_to_an_engine_on_disk() {
    for layer in [TableLayer::RocksDb, TableLayer::Lsm] {
        let folder = tempfile::tempdir().unwrap();
        let options = EngineOptions { layer, log_cap: LogCap::UNLIMITED, ..EngineOptions::default() };
        let volume = Volume::over(Arc::new(DiskEngine::open(folder.path(), options).unwrap()));
        let begin = volume.engine.head();
        let (mut job, lease) =
            volume.begin("job", JobOptions { memory_bytes_max: 1 << 20, ..JobOptions::default() });
        let apply = |job: &mut batch::PrivateNamespace, parent: Ino, text: &str, kind| {
            let ino = job.allocate(parent).unwrap();
            job.apply(&context(USER, 100), &create(USER, parent, text, ino, kind, 0o755)).unwrap();
            ino
        };
        for dir in 0..20 {
            let parent = apply(&mut job, volume.home, &format!("d{dir}"), Kind::Directory);
            for nr in 0..500 {
                apply(&mut job, parent, &format!("f{nr}"), Kind::File);
            }
        }
        let batch = job.seal().unwrap();
        volume.create(USER, volume.home, "meanwhile", Kind::File, 0o644);
        let merged = volume.merge(&batch, &lease).unwrap();
        assert_eq!((merged.accepted, merged.refused.len()), (10_020, 0));
        volume.assert_serial();
        assert_eq!(volume.namespace.entries(volume.home, None, 100).unwrap().len(), 21);
        assert_eq!(volume.namespace.inode(volume.home).unwrap().nlink, 22);
        let dir = volume.namespace.lookup(volume.home, &name("d7")).unwrap().unwrap();
        assert_eq!(volume.namespace.entries(dir.ino, None, 1000).unwrap().len(), 500);
        let page = volume.engine.log_after(begin, 100).unwrap();
        assert!(page.len() < 600, "{} ops in a page", page.len());
        let state = values(&*volume.engine);
        let Volume { engine, namespace, .. } = volume;
        drop((namespace, engine));
        let reopened = DiskEngine::open(folder.path(), options).unwrap();
        assert!(values(&reopened) == state, "the batch survives reopening");
    }
}

#[test]
fn a_batch_that_is_damaged_is_rejected() {
    let volume = Volume::in_memory();
    let (batch, lease, _) = volume.sealed_with_file("a");
    let path = batch.dir().join("ops");
    let whole = std::fs::read(&path).unwrap();
    let state = values(&*volume.engine);
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, damaged).unwrap();
        assert!(matches!(volume.merge(&batch, &lease), Err(MergeError::Rejected(_))), "byte {at}");
    }
    assert_eq!(values(&*volume.engine), state);
    std::fs::write(&path, whole).unwrap();
    assert_eq!(volume.merge(&batch, &lease).unwrap().accepted, 1);
}

/// Batches are merged while other threads change the same directories. The tables are the effect of the log, in order.
#[test]
fn merges_and_commits_run_at_the_same_time() {
    for layer in [TableLayer::RocksDb, TableLayer::Lsm] {
        let folder = tempfile::tempdir().unwrap();
        let options = EngineOptions { layer, log_cap: LogCap::UNLIMITED, ..EngineOptions::default() };
        let volume = Volume::over(Arc::new(DiskEngine::open(folder.path(), options).unwrap()));
        let dirs: Vec<Ino> = (0..4)
            .map(|nr| volume.create(USER, volume.home, &format!("d{nr}"), Kind::Directory, 0o755))
            .collect();
        let is_done = AtomicUsize::new(0);
        let (accepted, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let merge = |number: usize| {
            for round in 0..3 {
                let (mut job, lease) = volume.begin(&format!("job{number}-{round}"), JobOptions::default());
                for nr in 0..1500 {
                    let dir = dirs[nr % 4];
                    let ino = job.allocate(dir).unwrap();
                    // Some names are those of the other job and of the interactive client.
                    let text =
                        if nr % 50 == 0 { format!("common{nr}") } else { format!("{number}-{round}-{nr}") };
                    let made =
                        job.apply(&context(USER, 100), &create(USER, dir, &text, ino, Kind::File, 0o644));
                    assert!(made.is_ok() || nr % 50 == 0);
                }
                let merged = volume.merge(&job.seal().unwrap(), &lease).unwrap();
                accepted.fetch_add(merged.accepted as usize, Ordering::SeqCst);
                refused.fetch_add(merged.refused.len(), Ordering::SeqCst);
            }
            is_done.fetch_add(1, Ordering::SeqCst);
        };
        let act = || {
            let mut nr = 0;
            // Also ends if a merge has failed.
            while is_done.load(Ordering::SeqCst) < 2 && nr < 100_000 {
                let dir = dirs[nr % 4];
                let text = if nr % 10 == 0 { format!("common{}", nr * 5 % 1500) } else { format!("own{nr}") };
                let ino = volume.namespace.allocate(dir, 1)[0];
                let made =
                    volume.namespace.commit(&context(0, 100), &create(0, dir, &text, ino, Kind::File, 0o644));
                assert!(made.is_ok() || nr % 10 == 0, "{made:?}");
                nr += 1;
                std::thread::sleep(std::time::Duration::from_micros(500));
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| merge(0));
            scope.spawn(|| merge(1));
            scope.spawn(act);
        });
        let (accepted, refused) = (accepted.into_inner(), refused.into_inner());
        assert!(accepted > 8000 && refused > 0, "{accepted} accepted, {refused} refused");
        volume.assert_serial();
    }
}

/// The commit of a merge is made, but its outcome is lost. The next merge finds it. It does not say that files share no objects, as the caller would
/// then delete those that they share.
#[test]
fn a_merge_whose_outcome_was_lost_is_found() {
    let volume = Volume::hooked();
    let (batch, lease, ino) = volume.sealed_with_file("a");
    volume.engine.lose_outcomes(true);
    let uncertain = volume.merge(&batch, &lease);
    assert!(matches!(uncertain, Err(MergeError::Engine(EngineError::Uncertain(_)))), "{uncertain:?}");
    let found = volume.merge(&batch, &lease).unwrap();
    assert_eq!(found.earlier.map(|outcome| (outcome.accepted, outcome.refused)), Some((1, 0)));
    assert_eq!(found.shared, None);
    assert!(volume.namespace.inode(ino).is_ok());
    volume.assert_serial();
}
