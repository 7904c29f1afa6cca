//! Concurrent ops: their outcome is that of a serial execution in the order of the log.

use crate::properties::{CONTEXT, engine, outcome, replayed, table};
use crate::strategies;
use meta::{
    AttrChanges, Commit, CommitError, Condition, Engine, EngineError, FsError, Ino, KeyRange, Kind, LogError,
    LoggedOp, MemoryEngine, Name, Namespace, Observed, Op, OpContext, Reader, RenameHow, Rows, RunBuilder,
    SeenName, Seqno, Staged, Versioned, invariants, namespace, schema,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

/// An engine that calls a function before each read or commit, with the number of calls since `begin`.
struct HookedEngine<F>(Arc<MemoryEngine>, AtomicUsize, F);

impl<F: Fn(usize) + Send + Sync> HookedEngine<F> {
    fn new(engine: &Arc<MemoryEngine>, before: F) -> Arc<Self> {
        Arc::new(Self(engine.clone(), AtomicUsize::new(usize::MAX / 2), before))
    }

    fn begin(&self) {
        self.1.store(0, Ordering::SeqCst);
    }

    fn inner(&self) -> &MemoryEngine {
        self.2(self.1.fetch_add(1, Ordering::SeqCst));
        &self.0
    }
}

impl<F> fmt::Debug for HookedEngine<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HookedEngine")
    }
}

impl<F: Fn(usize) + Send + Sync> Reader for HookedEngine<F> {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        self.inner().get(key)
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        self.inner().multi_get(keys)
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        self.inner().scan(from, to, limit)
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        self.inner().last(range)
    }
}

impl<F: Fn(usize) + Send + Sync> Engine for HookedEngine<F> {
    fn snapshot_with_head(&self) -> Result<(Arc<dyn Reader>, Seqno), EngineError> {
        self.0.snapshot_with_head()
    }

    fn commit(&self, commit: Commit) -> Result<Seqno, CommitError> {
        self.inner().commit(commit)
    }

    fn log_after(&self, cursor: Seqno, limit: usize) -> Result<Vec<LoggedOp>, LogError> {
        self.0.log_after(cursor, limit)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.0.sync()
    }

    fn begin_run(&self) -> Result<Box<dyn RunBuilder<'_> + '_>, EngineError> {
        self.0.begin_run()
    }

    fn register(&self, consumer: &str, at: Seqno) -> Result<(), LogError> {
        self.0.register(consumer, at)
    }

    fn cursor(&self, consumer: &str) -> Result<Seqno, LogError> {
        self.0.cursor(consumer)
    }

    fn advance(&self, consumer: &str, to: Seqno) -> Result<(), LogError> {
        self.0.advance(consumer, to)
    }

    fn forget_consumer(&self, consumer: &str) -> Result<(), LogError> {
        self.0.forget_consumer(consumer)
    }

    fn head(&self) -> Seqno {
        self.0.head()
    }

    fn memory_bytes(&self) -> u64 {
        self.0.memory_bytes()
    }
}

/// Creates an engine with the files of the prelude, and applies further ops.
fn prepared(setup: &[(OpContext, Op)]) -> Arc<MemoryEngine> {
    let engine = engine();
    let namespace = Namespace::new(engine.clone(), &CONTEXT).unwrap();
    for op in strategies::prelude() {
        namespace.commit(&CONTEXT, &op).unwrap();
    }
    for (context, op) in setup {
        let _ = namespace.commit(context, op);
    }
    engine
}

/// Commits an op without a [`Namespace`], which would lease inode numbers and so add an op.
fn commit(engine: &MemoryEngine, context: &OpContext, op: &Op) -> Result<meta::Applied, FsError> {
    let mut txn = Staged::new(engine);
    let applied = namespace::apply(&mut txn, context, op)?;
    txn.keep_op(context, op, &applied);
    engine.commit(txn.into_commit()).unwrap();
    Ok(applied)
}

/// Commits an op and runs the ops of `meanwhile` before its call number `at` to the engine. Checks that the outcome is as if the op
/// had run before, between or after these ops.
fn interrupt(
    setup: &[(OpContext, Op)],
    (context, op): &(OpContext, Op),
    meanwhile: &[(OpContext, Op)],
    at: usize,
) {
    let engine = prepared(setup);
    let others = (engine.clone(), meanwhile.to_vec());
    let hooked = HookedEngine::new(&engine, move |call| {
        if call == at {
            for (context, op) in &others.1 {
                let _ = commit(&others.0, context, op);
            }
        }
    });
    let namespace = Namespace::new(hooked.clone() as Arc<dyn Engine>, &CONTEXT).unwrap();
    hooked.begin();
    let result = outcome(&namespace.commit(context, op));
    assert_eq!(invariants::fsck(&*engine).unwrap(), vec![]);
    assert_eq!(table(&*replayed(&engine)), table(&*engine));
    let serial_outcome = |position: usize| {
        let engine = prepared(setup);
        for (context, op) in &meanwhile[..position] {
            let _ = commit(&engine, context, op);
        }
        outcome(&commit(&engine, context, op))
    };
    let serial: Vec<_> = (0..=meanwhile.len()).map(serial_outcome).collect();
    assert!(serial.contains(&result), "{result:?} is none of {serial:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// An op is atomic, whatever happens between any two of its steps.
    #[test]
    fn ops_are_atomic(
        setup in strategies::sequence(12),
        interrupted in strategies::sequence(2),
        meanwhile in strategies::sequence(4),
        at in 0..12usize,
    ) {
        interrupt(&setup, &interrupted[0], &meanwhile, at);
    }
}

/// Pairs of ops that the random test rarely generates, interrupted at every step.
#[test]
fn conflicting_ops_in_a_directory_are_atomic() {
    let name = |text: &str| Name::new(text.as_bytes()).unwrap();
    let rename = |from: (u64, &str), to: (u64, &str)| Op::Rename {
        from: (Ino(from.0), name(from.1)),
        to: (Ino(to.0), name(to.1)),
        how: RenameHow::Replace,
        keep: false,
    };
    let create = Op::Create {
        parent: Ino(4),
        name: name("new"),
        ino: Ino(20),
        kind: Kind::Directory,
        mode: 0o755,
        uid: 0,
        gid: 9,
        umask: 0,
        rdev: 0,
        target: None,
    };
    let seen = Observed {
        kind: Kind::File,
        size_bytes: 0,
        object: None,
        mode: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        atime: CONTEXT.now,
        mtime: CONTEXT.now,
        ctime: CONTEXT.now,
        btime: CONTEXT.now,
        target: None,
        exact: false,
        looked_at: CONTEXT.at,
    };
    let import = Op::Import { parent: Ino(4), name: name("new"), ino: Ino(20), seen };
    let remove_c = vec![
        Op::Unlink { parent: Ino(4), name: name("a"), keep: false },
        Op::Rmdir { parent: Ino::ROOT, name: name("c") },
    ];
    let group = AttrChanges { mode: Some(0o2755), gid: Some(77), ..AttrChanges::default() };
    let set_group = Op::SetAttr { ino: Ino(4), changes: group };
    let a_into_c = rename((1, "a"), (4, "x"));
    let c_into_b = rename((1, "c"), (3, "x"));
    let cases = [
        (import, remove_c.clone()),
        (create.clone(), remove_c.clone()),
        (rename((1, "d"), (4, "x")), remove_c.clone()),
        (Op::Link { ino: Ino(5), parent: Ino(4), name: name("x") }, remove_c.clone()),
        (remove_c[1].clone(), vec![remove_c[0].clone(), create.clone()]),
        (create, vec![set_group.clone()]),
        (set_group, vec![rename((1, "c"), (2, "x"))]),
        (a_into_c.clone(), vec![c_into_b.clone()]),
        (c_into_b.clone(), vec![a_into_c]),
        (c_into_b, vec![rename((2, "b"), (1, "z")), rename((1, "z"), (1, "y"))]),
        (
            Op::Unlink { parent: Ino::ROOT, name: name("d"), keep: true },
            vec![Op::Link { ino: Ino(5), parent: Ino(4), name: name("x") }],
        ),
    ];
    for (op, meanwhile) in cases {
        let meanwhile: Vec<_> = meanwhile.into_iter().map(|op| (CONTEXT, op)).collect();
        for at in 0..16 {
            interrupt(&[], &(CONTEXT, op.clone()), &meanwhile, at);
        }
    }
}

/// The inode numbers that the numbers of generated ops stand for. Each created inode gets a number of its own, as from the allocator,
/// because ops rely on the number of a removed directory never being that of a file.
struct Numbers {
    current: Vec<AtomicU64>,
    next: AtomicU64,
}

impl Numbers {
    fn new() -> Self {
        let current = (0..=strategies::INO_MAX).map(AtomicU64::new).collect();
        Self { current, next: AtomicU64::new(strategies::INO_MAX + 1) }
    }

    /// Commits a generated op with the inode numbers that its numbers stand for.
    fn commit(
        &self,
        namespace: &Namespace,
        context: &OpContext,
        mut op: Op,
    ) -> Result<meta::Applied, FsError> {
        let (created, existing) = strategies::numbers(&mut op);
        for ino in existing {
            ino.0 = self.current[ino.0 as usize].load(Ordering::SeqCst);
        }
        let created = created.map(|ino| {
            let fresh = self.next.fetch_add(1, Ordering::SeqCst);
            (std::mem::replace(&mut ino.0, fresh), fresh)
        });
        let result = namespace.commit(context, &op);
        if let (Ok(_), Some((number, fresh))) = (&result, created) {
            self.current[number as usize].store(fresh, Ordering::SeqCst);
        }
        result
    }
}

/// Ops of several threads are equivalent to a serial execution in the order of the log: a replay gives the same tables.
#[test]
fn threads_keep_the_invariants() {
    let mut runner = TestRunner::deterministic();
    for world in 0..8 {
        let engine = engine();
        let namespace =
            Namespace::new(HookedEngine::new(&engine, |_| thread::yield_now()), &CONTEXT).unwrap();
        for op in strategies::prelude() {
            namespace.commit(&CONTEXT, &op).unwrap();
        }
        let numbers = Numbers::new();
        for _ in 0..4 {
            let sequences: Vec<_> =
                (0..4).map(|_| strategies::sequence(200).new_tree(&mut runner).unwrap().current()).collect();
            thread::scope(|scope| {
                for sequence in sequences {
                    let (namespace, numbers) = (&namespace, &numbers);
                    scope.spawn(move || {
                        for (context, op) in sequence {
                            let what = format!("{op:?}");
                            let result = numbers.commit(namespace, &context, op);
                            let failed = matches!(
                                result,
                                Err(FsError::Corrupt(_) | FsError::Engine(_) | FsError::Conflict)
                            );
                            assert!(!failed, "{what}: {result:?}");
                        }
                    });
                }
            });
            assert_eq!(invariants::fsck(&*engine).unwrap(), vec![]);
        }
        assert_eq!(table(&*replayed(&engine)), table(&*engine), "world {world}");
    }
}

/// Ops for a file whose name was seen never reach another file that gets the name meanwhile.
#[test]
fn a_commit_for_a_seen_name_does_not_reach_another_inode() {
    let named = |text: &str| Name::new(text.as_bytes()).unwrap();
    let mut outcomes = Vec::new();
    for at in 0..20 {
        let (from, to) = ((Ino::ROOT, named("newer")), (Ino::ROOT, named("file")));
        let (engine, has_run) = (engine(), Arc::new(AtomicUsize::new(0)));
        let other = (Namespace::new(engine.clone(), &CONTEXT).unwrap(), has_run.clone());
        let rename = Op::Rename { from: from.clone(), to: to.clone(), how: RenameHow::Replace, keep: true };
        let hooked = HookedEngine::new(&engine, move |call| {
            if call == at {
                other.0.commit(&CONTEXT, &rename).unwrap();
                other.1.store(1, Ordering::SeqCst);
            }
        });
        let namespace = Namespace::new(hooked.clone(), &CONTEXT).unwrap();
        let create = |(parent, name): &(Ino, Name)| {
            let ino = namespace.allocate(*parent, 1)[0];
            let (parent, name) = (*parent, name.clone());
            let (mode, uid, gid, umask, rdev, target) = (0o644, 0, 0, 0, 0, None);
            let kind = Kind::File;
            let op = Op::Create { parent, name, ino, kind, mode, uid, gid, umask, rdev, target };
            namespace.commit(&CONTEXT, &op).unwrap();
            ino
        };
        let (newer, file) = (create(&from), create(&to));
        let seen = [SeenName { parent: to.0, name: to.1.clone(), ino: file }];
        let unlink = Op::Unlink { parent: to.0, name: to.1.clone(), keep: false };
        hooked.begin();
        let outcome = namespace.commit_together_if(&CONTEXT, &seen, &[unlink]).map(drop);
        let expected = if has_run.load(Ordering::SeqCst) > 0 { Err(FsError::NotFound) } else { Ok(()) };
        assert_eq!(outcome, expected, "renamed before call {at}");
        assert!(!namespace.inode(newer).unwrap().is_orphan(), "renamed before call {at}");
        outcomes.push(outcome);
    }
    assert!(outcomes.contains(&Ok(())) && outcomes.contains(&Err(FsError::NotFound)));
}

/// Concurrent creates in one directory do not conflict, and every subdirectory is counted.
#[test]
fn creates_in_one_directory_do_not_conflict() {
    let engine = engine();
    let namespace = Namespace::new(HookedEngine::new(&engine, |_| thread::yield_now()), &CONTEXT).unwrap();
    thread::scope(|scope| {
        for thread in 0..4 {
            let namespace = &namespace;
            scope.spawn(move || {
                for at in 0..500 {
                    let op = Op::Create {
                        parent: Ino::ROOT,
                        name: Name::new(format!("{thread}-{at}").as_bytes()).unwrap(),
                        ino: namespace.allocate(Ino::ROOT, 1)[0],
                        kind: Kind::Directory,
                        mode: 0o755,
                        uid: 0,
                        gid: 0,
                        umask: 0,
                        rdev: 0,
                        target: None,
                    };
                    namespace.commit(&CONTEXT, &op).unwrap();
                }
            });
        }
    });
    assert_eq!(namespace.inode(Ino::ROOT).unwrap().nlink, 2 + 2000);
    // A conflict is retried and so is visible only in the time that it takes. Check the conditions of a create instead.
    let mut txn = Staged::new(&*engine);
    let op = Op::Create {
        parent: Ino::ROOT,
        name: Name::new(b"one more").unwrap(),
        ino: Ino(1 << 41),
        kind: Kind::Directory,
        mode: 0o755,
        uid: 0,
        gid: 0,
        umask: 0,
        rdev: 0,
        target: None,
    };
    namespace::apply(&mut txn, &CONTEXT, &op).unwrap();
    let root = schema::inode(Ino::ROOT);
    let versioned =
        |condition: &Condition| matches!(condition, Condition::Version { key, .. } if *key == root);
    assert!(!txn.into_commit().conditions.iter().any(versioned));
}
