//! Random sequences of ops: compared with the reference model, with batches, and with a replay of the log.

use crate::reference::{Changed, Node, Reference, without_fingerprint};
use crate::strategies;
use meta::{
    Applied, Engine, FsError, Ino, LogCap, MemoryEngine, Moment, Namespace, Op, OpContext, Origin, Reader,
    Seqno, invariants, namespace, schema,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use store::Timestamp;

pub(crate) const CONTEXT: OpContext =
    OpContext { now: Timestamp(1), at: Moment { mount: 1, nanos: 1 }, uid: 0, gid: 0, origin: Origin::Other };

/// Creates an engine that keeps its whole log, for the consumer `all`.
pub(crate) fn engine() -> Arc<MemoryEngine> {
    let engine = Arc::new(MemoryEngine::new(LogCap::UNLIMITED));
    engine.register("all", Seqno(0)).unwrap();
    engine
}

/// Returns all keys and their records, without versions.
pub(crate) fn table(engine: &impl Reader) -> Vec<(Vec<u8>, Vec<u8>)> {
    let rows = engine.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).unwrap();
    rows.into_iter().map(|(key, row)| (key, row.value.to_vec())).collect()
}

/// Returns the inodes of a namespace in the form of the reference model.
fn nodes(namespace: &Namespace) -> BTreeMap<Ino, Node> {
    let node = |ino: Ino| {
        let (mut inode, extents) = namespace.content(ino).ok()?;
        assert_eq!(namespace.inode(ino).unwrap(), inode);
        inode.content = without_fingerprint(&inode.content);
        let names = BTreeSet::from_iter(namespace.names(ino).unwrap());
        let entries = namespace.entries(ino, None, usize::MAX).unwrap();
        let xattrs = namespace.xattrs(ino).unwrap();
        let value = |name: &[u8]| namespace.xattr(ino, name).unwrap().to_vec();
        Some((
            ino,
            Node {
                inode,
                extents,
                names,
                entries: entries.into_iter().map(|(name, dentry)| (name, dentry.ino)).collect(),
                xattrs: xattrs.into_iter().map(|name| (name.to_vec(), value(&name))).collect(),
            },
        ))
    };
    (1..40).map(Ino).filter_map(node).collect()
}

/// Removes the reason of an error, since the reference model has other texts.
fn without_reason(error: &FsError) -> FsError {
    match error {
        FsError::Invalid(_) => FsError::Invalid(""),
        error => error.clone(),
    }
}

pub(crate) fn outcome(result: &Result<Applied, FsError>) -> Result<Changed, FsError> {
    result.as_ref().map(Changed::from).map_err(without_reason)
}

/// Replays the log of an engine on an empty engine.
pub(crate) fn replayed(engine: &MemoryEngine) -> Arc<MemoryEngine> {
    let log = engine.log_after(Seqno(0), usize::MAX).unwrap();
    let copy = self::engine();
    for commit in log.chunk_by(|a, b| a.seqno == b.seqno) {
        let ops: Vec<_> = commit.iter().map(|logged| (logged.context, logged.op.clone())).collect();
        namespace::replay(&*copy, &ops).unwrap();
    }
    copy
}

/// The version of an inode, and the records that change only together with it.
#[derive(Debug, Default)]
struct Group {
    version: Option<Seqno>,
    records: Vec<(Vec<u8>, meta::Value)>,
}

/// Returns the records that change together with an inode, by its number.
fn groups(engine: &MemoryEngine) -> BTreeMap<Ino, Group> {
    let mut groups: BTreeMap<Ino, Group> = BTreeMap::new();
    for (key, row) in engine.scan(Bound::Unbounded, Bound::Unbounded, usize::MAX).unwrap() {
        if schema::changes_with_inode(&key) {
            let ino = schema::ino_of(&key).unwrap();
            let group = groups.entry(ino).or_default();
            if key == schema::inode(ino) {
                group.version = Some(row.version);
            }
            group.records.push((key, row.value));
        }
    }
    groups
}

/// Asserts that the version of each inode whose records have changed has changed too.
fn assert_versions_count_changes(before: &BTreeMap<Ino, Group>, after: &BTreeMap<Ino, Group>, op: &Op) {
    for (ino, group) in before {
        let is_same = after.get(ino).is_some_and(|now| now.version == group.version);
        let has_changed = after.get(ino).is_none_or(|now| now.records != group.records);
        assert!(!is_same || !has_changed, "{op:?} changed records of inode {ino} and not its version");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ops_match_the_reference_model(sequence in strategies::sequence(60)) {
        let engine = engine();
        let namespace = Namespace::new(engine.clone(), &CONTEXT).unwrap();
        let mut reference = Reference::new(namespace.inode(Ino::ROOT).unwrap());
        let prelude = strategies::prelude().into_iter().map(|op| (CONTEXT, op));
        for (context, op) in &prelude.chain(sequence).collect::<Vec<_>>() {
            let (head, before) = (engine.head(), groups(&engine));
            let result = namespace.commit(context, op);
            let expected = reference.apply(context, op).map_err(|error| without_reason(&error));
            prop_assert_eq!(outcome(&result), expected, "{:?}", op);
            prop_assert_eq!(engine.head() > head, result.is_ok(), "only ops that succeed are committed: {:?}", op);
            prop_assert_eq!(invariants::fsck(&*engine).unwrap(), vec![], "after {:?}", op);
            assert_versions_count_changes(&before, &groups(&engine), op);
        }
        prop_assert_eq!(nodes(&namespace), reference.nodes());
        prop_assert_eq!(table(&*replayed(&engine)), table(&*engine));
    }

    #[test]
    fn a_batch_equals_its_ops_one_by_one(sequence in strategies::sequence(60), size in 1..30usize) {
        let (one, many) = (engine(), engine());
        let one_by_one = Namespace::new(one.clone(), &CONTEXT).unwrap();
        let in_batches = Namespace::new(many.clone(), &CONTEXT).unwrap();
        let ops: Vec<Op> = strategies::prelude().into_iter().chain(sequence.into_iter().map(|(_, op)| op)).collect();
        for (at, batch) in ops.chunks(size).enumerate() {
            let now = Timestamp(1_000 + at as i64);
            let context = OpContext { now, at: strategies::at(now), ..CONTEXT };
            let expected: Vec<_> = batch.iter().map(|op| one_by_one.commit(&context, op)).collect();
            prop_assert_eq!(in_batches.commit_all(&context, batch).unwrap(), expected);
        }
        prop_assert_eq!(table(&*many), table(&*one));
        prop_assert_eq!(table(&*replayed(&many)), table(&*one));
    }
}
