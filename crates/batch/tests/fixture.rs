//! A volume, jobs over it, and random ops.

use batch::{JobOptions, PrivateNamespace, Proof, SealedBatch, Terms};
use meta::access::Caller;
use meta::{
    Applied, AttrChanges, Engine, FsError, Ino, Kind, LogCap, MemoryEngine, Moment, Name, Namespace, Op,
    OpContext, Origin, Reader, RenameHow, Rows, Seqno, Staged, Value, XattrHow, invariants, namespace,
    schema,
};
use std::ops::{Bound, Range};
use std::path::Path;
use std::sync::Arc;
use store::{Entropy, Timestamp};

/// The user of the batches.
pub(crate) const USER: u32 = 1000;

/// The moment at which batches are begun.
pub(crate) const AT: Moment = Moment { mount: 1, nanos: 50 };

pub(crate) fn context(uid: u32, now: i64) -> OpContext {
    OpContext {
        now: Timestamp(now),
        at: if uid == USER { AT } else { Moment { mount: 1, nanos: 60 } },
        uid,
        gid: uid,
        origin: Origin::Other,
    }
}

/// A volume with the directory `/home` of the user, and `/root` with a file, which only the superuser can change.
pub(crate) struct Volume<E: Engine> {
    pub(crate) engine: Arc<E>,
    pub(crate) namespace: Namespace,
    pub(crate) home: Ino,
    pub(crate) foreign: Ino,
    pub(crate) foreign_file: Ino,
    pub(crate) folder: tempfile::TempDir,
}

/// The consumer for which the whole log is kept.
const ALL: &str = "all";

impl Volume<MemoryEngine> {
    pub(crate) fn in_memory() -> Self {
        Self::over(Arc::new(MemoryEngine::new(LogCap::UNLIMITED)))
    }
}

impl<E: Engine + 'static> Volume<E> {
    pub(crate) fn over(engine: Arc<E>) -> Self {
        engine.register(ALL, Seqno(0)).unwrap();
        let namespace = Namespace::new(engine.clone(), &context(0, 1)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut volume =
            Self { engine, namespace, home: Ino::ROOT, foreign: Ino::ROOT, foreign_file: Ino::ROOT, folder };
        volume.home = volume.create(USER, Ino::ROOT, "home", Kind::Directory, 0o755);
        volume.foreign = volume.create(0, Ino::ROOT, "root", Kind::Directory, 0o755);
        volume.foreign_file = volume.create(0, volume.foreign, "secret", Kind::File, 0o600);
        volume
    }

    pub(crate) fn create(&self, uid: u32, parent: Ino, text: &str, kind: Kind, mode: u16) -> Ino {
        let ino = self.namespace.allocate(parent, 1)[0];
        self.namespace.commit(&context(uid, 2), &create(uid, parent, text, ino, kind, mode)).unwrap();
        ino
    }

    /// Leases inode numbers and begins a job.
    pub(crate) fn begin(&self, name: &str, options: JobOptions) -> (PrivateNamespace, Range<Ino>) {
        let lease = batch::begin(&self.namespace, &context(0, 3), self.home).unwrap().lease;
        let dir = self.folder.path().join(name);
        let job =
            PrivateNamespace::begin(&dir, self.engine.snapshot().unwrap(), lease.clone(), options).unwrap();
        (job, lease)
    }

    /// Returns a batch that creates one file in the home, its lease, and the file's inode number.
    pub(crate) fn sealed_with_file(&self, text: &str) -> (SealedBatch, Range<Ino>, Ino) {
        let (mut job, lease) = self.begin("job", JobOptions::default());
        let file = job.allocate(self.home).unwrap();
        job.apply(&context(USER, 200), &create(USER, self.home, text, file, Kind::File, 0o644)).unwrap();
        (job.seal().unwrap(), lease, file)
    }

    pub(crate) fn merge(
        &self,
        batch: &SealedBatch,
        lease: &Range<Ino>,
    ) -> Result<batch::Merged, batch::MergeError> {
        self.merge_into(&*self.engine, batch, lease, Proof::Replay)
    }

    /// Merges a batch into an engine, which may be another one.
    pub(crate) fn merge_into(
        &self,
        engine: &dyn Engine,
        batch: &SealedBatch,
        lease: &Range<Ino>,
        proof: Proof,
    ) -> Result<batch::Merged, batch::MergeError> {
        let scratch = tempfile::tempdir_in(self.folder.path()).unwrap();
        batch::merge(engine, batch, &terms(lease), scratch.path(), proof)
    }

    /// Asserts that the tables are the effect of the ops in the log, in order, and violate no invariant.
    pub(crate) fn assert_serial(&self) {
        assert_serial(&*self.engine);
    }

    pub(crate) fn logged(&self) -> usize {
        self.engine.log_after(Seqno(0), usize::MAX).unwrap().len()
    }
}

/// Asserts that the tables are the effect of the ops in the log, in order, and violate no invariant.
pub(crate) fn assert_serial(engine: &dyn Engine) {
    let replayed = MemoryEngine::new(LogCap::UNLIMITED);
    for logged in engine.log_after(Seqno(0), usize::MAX).unwrap() {
        commit_op(&replayed, &logged.context, &logged.op).unwrap();
    }
    assert_eq!(values(engine), values(&replayed));
    assert_eq!(invariants::fsck(engine).unwrap(), vec![]);
}

pub(crate) fn terms(lease: &Range<Ino>) -> Terms {
    let caller = Caller { uid: USER, gid: USER, groups: Box::default() };
    Terms {
        caller,
        lease: lease.clone(),
        at: AT,
        times: Timestamp(100)..=Timestamp(1_000_000),
        content: None,
        packs: None,
        keeps_refused: false,
        submitted: Timestamp(1_000_000),
    }
}

/// Returns whether the user may carry out an op, as it is.
pub(crate) fn is_permitted(state: &dyn Reader, now: Timestamp, op: &Op) -> bool {
    let caller = Caller { uid: USER, gid: USER, groups: Box::default() };
    meta::access::authorize(state, &caller, now, op).as_ref() == Ok(op)
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub(crate) fn create(uid: u32, parent: Ino, text: &str, ino: Ino, kind: Kind, mode: u16) -> Op {
    let target = (kind == Kind::Symlink).then(|| "target".into());
    Op::Create { parent, name: name(text), ino, kind, mode, umask: 0o022, uid, gid: uid, rdev: 0, target }
}

/// Asserts that the ops that a merge has logged are the user's, are permitted one after the other, and make the tables.
pub(crate) fn assert_permitted(before: &MemoryEngine, merged: &MemoryEngine, what: &str) {
    let model = before.fork();
    for logged in merged.log_after(before.head(), usize::MAX).unwrap() {
        let context = logged.context;
        // The record of the merge is the server's.
        if matches!(logged.op, Op::SetBatch { .. } | Op::SetRefusedOp { .. }) {
            continue;
        }
        assert_eq!((context.uid, context.gid), (USER, USER), "{what}");
        assert_eq!((context.at, context.origin), (AT, Origin::Other), "{what}");
        assert!((100..=1_000_000).contains(&context.now.0), "{what}: {context:?}");
        assert!(is_permitted(&model, context.now, &logged.op), "{what}: {:?}", logged.op);
        let mut txn = Staged::new(&model);
        namespace::apply(&mut txn, &context, &logged.op).unwrap();
        model.commit(txn.into_commit()).unwrap();
    }
    assert_eq!(values(merged), values(&model), "{what}");
    assert_eq!(meta::invariants::fsck(merged).unwrap(), [], "{what}");
}

/// Returns all keys with their records, except for those of batches, which count ops.
pub(crate) fn values(state: &dyn Reader) -> Vec<(Vec<u8>, Value)> {
    let rows: Rows = state.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).unwrap();
    let rows = rows.into_iter().filter(|(key, _)| !schema::is_of_batch(key));
    rows.map(|(key, row)| (key, row.value)).collect()
}

/// Applies an op and commits it.
pub(crate) fn commit_op(engine: &dyn Engine, context: &OpContext, op: &Op) -> Result<Applied, FsError> {
    let mut txn = Staged::new(engine);
    let applied = namespace::apply(&mut txn, context, op)?;
    txn.keep_op(context, op, &applied);
    engine.commit(txn.into_commit()).unwrap();
    Ok(applied)
}

/// A source of random ops, which knows the inodes that were created.
pub(crate) struct Ops {
    pub(crate) entropy: Entropy,
    uid: u32,
    dirs: Vec<Ino>,
    files: Vec<Ino>,
}

impl Ops {
    pub(crate) fn new(seed: u64, uid: u32, dirs: &[Ino]) -> Self {
        Self { entropy: Entropy::new(seed), uid, dirs: dirs.to_vec(), files: Vec::new() }
    }

    /// Tells the source that an op has succeeded.
    pub(crate) fn succeeded(&mut self, op: &Op) {
        match op {
            Op::Create { ino, kind: Kind::Directory, .. } => self.dirs.push(*ino),
            Op::Create { ino, .. } => self.files.push(*ino),
            _ => {}
        }
    }

    fn below(&self, bound: u64) -> u64 {
        self.entropy.below(bound)
    }

    fn dir(&self) -> Ino {
        self.dirs[self.below(self.dirs.len() as u64) as usize]
    }

    fn ino(&self) -> Ino {
        match self.files.len() as u64 {
            0 => self.dir(),
            _ if self.below(4) == 0 => self.dir(),
            files => self.files[self.below(files) as usize],
        }
    }

    fn entry(&self) -> (Ino, Name) {
        (self.dir(), name(["a", "b", "c", "d", "e", "f"][self.below(6) as usize]))
    }

    pub(crate) fn next(&self, mut allocate: impl FnMut(Ino) -> Ino) -> Op {
        let (parent, name) = self.entry();
        let ino = self.ino();
        match self.below(16) {
            0..=5 => {
                let kind = [Kind::File, Kind::File, Kind::Directory, Kind::Symlink][self.below(4) as usize];
                let ino = allocate(parent);
                let mode = [0o644, 0o755, 0o2775, 0o600][self.below(4) as usize];
                let target = (kind == Kind::Symlink).then(|| "target".into());
                Op::Create {
                    parent,
                    name,
                    ino,
                    kind,
                    mode,
                    umask: 0o022,
                    uid: self.uid,
                    gid: self.uid,
                    rdev: 0,
                    target,
                }
            }
            6 => Op::Link { ino, parent, name },
            7..=8 => Op::Unlink { parent, name, keep: false },
            9 => Op::Rmdir { parent, name },
            10..=12 => {
                let how =
                    [RenameHow::Replace, RenameHow::NoReplace, RenameHow::Exchange][self.below(3) as usize];
                Op::Rename { from: (parent, name), to: self.entry(), how, keep: false }
            }
            13 => {
                let mode = Some([0o644, 0o700, 0o755][self.below(3) as usize]);
                Op::SetAttr { ino, changes: AttrChanges { mode, ..AttrChanges::default() } }
            }
            14 => {
                let value = vec![self.below(256) as u8; 3].into();
                Op::SetXattr { ino, name: b"user.x"[..].into(), value, how: XattrHow::Set }
            }
            _ => Op::RemoveXattr { ino, name: b"user.x"[..].into() },
        }
    }
}

/// Copies the files of a directory.
pub(crate) fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
