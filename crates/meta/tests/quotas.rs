//! Quotas: the usage is exact at all times, and ops that would exceed a limit fail.

use crate::fixture::{Fixture, name};
use crate::strategies;
use meta::{
    AttrChanges, CommitError, Condition, Extent, FsError, Ino, Kind, Limits, MemoryEngine, Moment, Namespace,
    Op, OpContext, Origin, RenameHow, Staged, Stored, Usage, invariants, namespace, schema,
};
use proptest::prelude::*;
use std::ops::Range;
use std::sync::Arc;
use store::{ETag, ObjectKey, Timestamp};

const ROOT: Ino = Ino::ROOT;
const CONTEXT: OpContext =
    OpContext { now: Timestamp(1), at: Moment { mount: 1, nanos: 1 }, uid: 0, gid: 0, origin: Origin::Other };

fn limits(bytes: u64, files: u64) -> Option<Limits> {
    Some(Limits { bytes: Some(bytes), files: Some(files) })
}

/// Returns an op that gives a file content of a length.
fn set_length(ino: Ino, len: u64) -> Op {
    let key = Some(ObjectKey::try_from("k").unwrap());
    let object = Stored { key, etag: ETag::new("e"), version: None, last_modified: None };
    let content = vec![Extent { offset: 0, len, object, object_offset: 0 }];
    let ranges = vec![Range { start: 0, end: u64::MAX }];
    Op::Splice { ino, ranges, content, size_bytes: len, mtime: None }
}

impl Fixture {
    fn limit(&self, dir: Ino, limits: Option<Limits>) -> Result<(), FsError> {
        let outcome = self.namespace.set_quota(&CONTEXT, dir, limits);
        invariants::check(&**self.namespace.engine()).unwrap();
        outcome
    }

    fn used(&self, dir: Ino) -> (i64, i64) {
        let Usage { bytes, files } = self.namespace.quota(dir).unwrap().unwrap().used;
        (bytes, files)
    }

    fn grow(&self, ino: Ino, len: u64) -> Result<(), FsError> {
        self.apply(set_length(ino, len)).map(drop)
    }

    fn link(&self, ino: Ino, parent: Ino, text: &str) -> Result<(), FsError> {
        self.apply(Op::Link { ino, parent, name: name(text) }).map(drop)
    }
}

#[test]
fn a_quota_counts_existing_and_changing_inodes() {
    let fs = Fixture::new();
    let dir = fs.dir(ROOT, "d");
    let below = fs.dir(dir, "below");
    let file = fs.file(below, "f");
    fs.grow(file, 100).unwrap();
    fs.limit(dir, Some(Limits::default())).unwrap();
    fs.limit(ROOT, Some(Limits::default())).unwrap();
    assert_eq!((fs.used(dir), fs.used(ROOT)), ((100, 2), (100, 4)));
    let made = fs.file(fs.dir(below, "deep"), "g");
    fs.grow(made, 7).unwrap();
    assert_eq!((fs.used(dir), fs.used(ROOT)), ((107, 4), (107, 6)));
    fs.link(file, dir, "again").unwrap();
    fs.unlink(below, "f", false).unwrap();
    assert_eq!(fs.used(dir), (107, 4), "the file has another name");
    fs.unlink(dir, "again", true).unwrap();
    assert_eq!((fs.used(dir), fs.used(ROOT)), ((7, 3), (107, 6)), "an orphan counts for the volume only");
    fs.link(file, below, "back").unwrap();
    assert_eq!(fs.used(dir), (107, 4));
    let changes = AttrChanges { size_bytes: Some(1), ..AttrChanges::default() };
    fs.apply(Op::SetAttr { ino: file, changes }).unwrap();
    assert_eq!(fs.used(dir), (8, 4));
    fs.limit(dir, None).unwrap();
    assert_eq!((fs.namespace.quota(dir).unwrap(), fs.limit(dir, None)), (None, Err(FsError::NoData)));
    fs.limit(ROOT, None).unwrap();
    assert!(!fs.namespace.has_quotas());
}

#[test]
fn ops_beyond_a_limit_fail() {
    let fs = Fixture::new();
    let dir = fs.dir(ROOT, "d");
    fs.limit(dir, limits(100, 2)).unwrap();
    let file = fs.file(dir, "f");
    assert_eq!(fs.grow(file, 101), Err(FsError::OverQuota));
    fs.grow(file, 100).unwrap();
    fs.dir(dir, "below");
    assert_eq!(fs.make(dir, "third", Kind::File, 0), Err(FsError::OverQuota));
    fs.limit(dir, limits(50, 1)).unwrap();
    assert_eq!(fs.grow(file, 101), Err(FsError::OverQuota));
    fs.grow(file, 60).unwrap();
    fs.link(file, dir, "an additional name is not another file").unwrap();
    fs.limit(ROOT, limits(1000, 4)).unwrap();
    assert_eq!(fs.used(ROOT), (60, 4));
    assert_eq!(fs.make(ROOT, "none", Kind::File, 0), Err(FsError::VolumeFull));
}

#[test]
fn no_inode_is_in_two_trees() {
    let fs = Fixture::new();
    let (one, two) = (fs.dir(ROOT, "one"), fs.dir(ROOT, "two"));
    let (inside, file) = (fs.dir(one, "inside"), fs.file(ROOT, "f"));
    fs.link(file, one, "f").unwrap();
    assert!(
        matches!(fs.limit(one, limits(1, 1)), Err(FsError::Invalid(_))),
        "the file has a name outside of the tree"
    );
    fs.unlink(one, "f", false).unwrap();
    fs.limit(one, limits(1 << 20, 100)).unwrap();
    fs.limit(two, limits(1 << 20, 100)).unwrap();
    assert!(matches!(fs.limit(inside, limits(1, 1)), Err(FsError::Invalid(_))), "trees are not nested");
    for to in [two, one] {
        assert_eq!(fs.link(file, to, "g"), Err(FsError::OtherTree));
        assert_eq!(fs.rename((ROOT, "f"), (to, "g"), RenameHow::Replace), Err(FsError::OtherTree));
    }
    assert_eq!(fs.rename((one, "inside"), (two, "x"), RenameHow::Replace), Err(FsError::OtherTree));
    assert_eq!(fs.rename((ROOT, "one"), (two, "x"), RenameHow::Replace), Err(FsError::OtherTree));
    fs.rename((ROOT, "one"), (ROOT, "moved"), RenameHow::Replace).unwrap();
    let below = fs.dir(inside, "below");
    fs.rename((inside, "below"), (one, "up"), RenameHow::Replace).unwrap();
    fs.file(below, "counted");
    assert_eq!(fs.used(one), (0, 3));
    fs.apply(Op::Rmdir { parent: ROOT, name: name("two") }).unwrap();
    assert_eq!(fs.namespace.quota(two).unwrap(), None, "a quota is removed with its directory");
}

/// The usage changes by merges, so two creates do not conflict unless the usage is close to a limit.
#[test]
fn creates_in_a_tree_conflict_only_near_its_limit() {
    let fs = Fixture::new();
    let dir = fs.dir(ROOT, "d");
    let depends_on_usage = |files: u64| {
        fs.limit(dir, limits(1 << 30, files)).unwrap();
        let ino = fs.namespace.allocate(dir, 1)[0];
        let (kind, target) = (Kind::File, None);
        let (mode, umask, uid, gid, rdev) = (0o644, 0, 0, 0, 0);
        let op = Op::Create { parent: dir, name: name("f"), ino, kind, mode, umask, uid, gid, rdev, target };
        let mut txn = Staged::new(&**fs.namespace.engine());
        namespace::apply(&mut txn, &CONTEXT, &op).unwrap();
        let quota = schema::quota(dir);
        let is_usage =
            |condition: &Condition| matches!(condition, Condition::Version { key, .. } if *key == quota);
        txn.into_commit().conditions.iter().any(is_usage)
    };
    assert!(!depends_on_usage(1000) && depends_on_usage(10));
}

/// A small change read the usage while it was far from the limit, and was committed after a large change that came close to the
/// limit.
#[test]
fn a_limit_holds_when_a_large_change_comes_first() {
    let fs = Fixture::new();
    let dir = fs.dir(ROOT, "d");
    let (small, large) = (fs.file(dir, "small"), fs.file(dir, "large"));
    fs.limit(dir, limits(1 << 20, 100)).unwrap();
    let op = set_length(small, 4096);
    let mut small_change = Staged::new(&**fs.namespace.engine());
    namespace::apply(&mut small_change, &CONTEXT, &op).unwrap();
    fs.grow(large, (1 << 20) - 100).unwrap();
    let late = fs.namespace.engine().commit(small_change.into_commit());
    assert!(matches!(late, Err(CommitError::Conflict)), "{late:?}");
    assert_eq!(fs.apply(op).unwrap_err(), FsError::OverQuota);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// After each op all invariants hold. Invariant 16 is that each quota's usage is exact.
    #[test]
    fn usage_is_exact(steps in strategies::sequence(60), of_root: bool, trees in proptest::collection::vec(2..8u64, 0..3)) {
        let engine = Arc::new(MemoryEngine::default());
        let fs = Namespace::new(engine.clone(), &CONTEXT).unwrap();
        for op in strategies::prelude() {
            fs.commit(&CONTEXT, &op).unwrap();
        }
        let (before, after) = steps.split_at(steps.len() / 2);
        for (context, op) in before {
            fs.commit(context, op).ok();
        }
        for dir in trees.into_iter().chain(of_root.then_some(ROOT.0)) {
            fs.set_quota(&CONTEXT, Ino(dir), limits(5000, 12)).ok();
        }
        invariants::check(&*engine).unwrap();
        for (context, op) in after {
            fs.commit(context, op).ok();
            invariants::check(&*engine).unwrap();
        }
    }
}
