//! Cases for reads: get, multi_get, scan, last, snapshot.

use super::{Broken, Case, Factory, Outcome, delete, equal, fresh, op, put, value};
use crate::engine::{Commit, Engine};
use crate::record::KeyRange;
use std::ops::Bound::{self, Excluded, Included, Unbounded};

pub(super) const CASES: &[Case] = &[
    ("get returns the record that was put", get_returns_the_record),
    ("multi_get keeps the order of the keys", multi_get_keeps_the_order),
    ("scan returns keys in byte order", scan_is_in_byte_order),
    ("scan respects its bounds", scan_respects_its_bounds),
    ("scan respects its limit", scan_respects_its_limit),
    ("last respects its bounds", last_respects_its_bounds),
    ("a snapshot does not change", a_snapshot_does_not_change),
    ("a snapshot with its head is a cursor of the log", a_snapshot_with_its_head_is_a_cursor_of_the_log),
    ("keys and records may contain any bytes", keys_and_records_may_contain_any_bytes),
];

fn get_returns_the_record(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    equal("a missing key", engine.get(b"k")?, None)?;
    let seqno = engine.commit(put("k", "v"))?;
    let found = engine.get(b"k")?.ok_or(Broken("the key is missing".into()))?;
    equal("the record", found.value, value("v"))?;
    equal("its version", found.version, seqno)?;
    engine.commit(delete("k"))?;
    equal("a removed key", engine.get(b"k")?, None)
}

fn multi_get_keeps_the_order(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    engine.commit(put("a", "1"))?;
    engine.commit(put("b", "2"))?;
    let found = engine.multi_get(&[b"b".to_vec(), b"x".to_vec(), b"a".to_vec(), b"b".to_vec()])?;
    let texts: Vec<_> = found.into_iter().map(|found| found.map(|found| found.value)).collect();
    equal("records", texts, vec![Some(value("2")), None, Some(value("1")), Some(value("2"))])?;
    equal("no keys", engine.multi_get(&[])?, vec![])
}

const KEYS: [&[u8]; 7] = [b"\0", b"a", b"a\0", b"a\xff", b"b", b"\xff", b"\xff\xff"];

fn put_keys(engine: &dyn Engine) -> Outcome {
    for key in KEYS.iter().rev() {
        let puts = vec![(key.to_vec(), value("v"))];
        engine.commit(Commit { puts, ..Commit::default() })?;
    }
    Ok(())
}

fn keys(
    engine: &dyn Engine,
    from: Bound<&[u8]>,
    to: Bound<&[u8]>,
    limit: usize,
) -> Result<Vec<Vec<u8>>, Broken> {
    Ok(engine.scan(from, to, limit)?.into_iter().map(|(key, _)| key).collect())
}

fn scan_is_in_byte_order(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    equal("an empty engine", keys(&*engine, Unbounded, Unbounded, 10)?, vec![])?;
    put_keys(&*engine)?;
    equal("all keys", keys(&*engine, Unbounded, Unbounded, usize::MAX)?, KEYS.map(<[u8]>::to_vec).to_vec())
}

fn scan_respects_its_bounds(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    put_keys(&*engine)?;
    let expected = |from: usize, to: usize| KEYS[from..to].iter().map(|key| key.to_vec()).collect::<Vec<_>>();
    let found = |from, to| keys(&*engine, from, to, 100);
    equal("[a, b)", found(Included(b"a"), Excluded(b"b"))?, expected(1, 4))?;
    equal("(a, b]", found(Excluded(b"a"), Included(b"b"))?, expected(2, 5))?;
    equal("[a, a]", found(Included(b"a"), Included(b"a"))?, expected(1, 2))?;
    equal("[a, a)", found(Included(b"a"), Excluded(b"a"))?, vec![])?;
    equal("(a, a)", found(Excluded(b"a"), Excluded(b"a"))?, vec![])?;
    equal("[b, a)", found(Included(b"b"), Excluded(b"a"))?, vec![])?;
    equal("(b, ..", found(Excluded(b"b"), Unbounded)?, expected(5, 7))?;
    equal(".., b)", found(Unbounded, Excluded(b"b"))?, expected(0, 4))
}

fn scan_respects_its_limit(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    put_keys(&*engine)?;
    equal("limit 0", keys(&*engine, Unbounded, Unbounded, 0)?, vec![])?;
    let two: Vec<_> = KEYS[1..3].iter().map(|key| key.to_vec()).collect();
    equal("limit 2", keys(&*engine, Included(b"a"), Unbounded, 2)?, two)
}

fn last_respects_its_bounds(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    let last = |from: &[u8], to: &[u8]| {
        let found = engine.last(&KeyRange { from: from.to_vec(), to: to.to_vec() })?;
        Ok::<_, Broken>(found.map(|(key, found)| (key, found.value)))
    };
    equal("an empty engine", last(b"a", b"c")?, None)?;
    put_keys(&*engine)?;
    let expected = |key: &[u8]| Some((key.to_vec(), value("v")));
    equal("[a, b)", last(b"a", b"b")?, expected(b"a\xff"))?;
    equal("[a, b\\0)", last(b"a", b"b\0")?, expected(b"b"))?;
    equal("[a, c)", last(b"a", b"c")?, expected(b"b"))?;
    equal("[b\\0, c)", last(b"b\0", b"c")?, None)?;
    equal("[a, a)", last(b"a", b"a")?, None)?;
    equal("[b, a)", last(b"b", b"a")?, None)
}

fn a_snapshot_does_not_change(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    engine.commit(put("a", "1"))?;
    engine.commit(put("b", "1"))?;
    let snapshot = engine.snapshot()?;
    engine.commit(put("a", "2"))?;
    engine.commit(put("c", "2"))?;
    engine.commit(delete("b"))?;
    let read = |key: &[u8]| Ok::<_, Broken>(snapshot.get(key)?.map(|found| found.value));
    equal("a record that was replaced", read(b"a")?, Some(value("1")))?;
    equal("a record that was removed", read(b"b")?, Some(value("1")))?;
    equal("a record that came later", read(b"c")?, None)?;
    let both = snapshot.multi_get(&[b"a".to_vec(), b"c".to_vec()])?;
    equal(
        "many records",
        both.into_iter().map(|found| found.map(|found| found.value)).collect(),
        vec![Some(value("1")), None],
    )?;
    let rows = snapshot.scan(Unbounded, Unbounded, 9)?;
    let keys: Vec<_> = rows.into_iter().map(|(key, _)| key).collect();
    equal("all records", keys, vec![b"a".to_vec(), b"b".to_vec()])?;
    let last = snapshot.last(&KeyRange { from: b"a".to_vec(), to: b"z".to_vec() })?;
    equal("the last record", last.map(|(key, _)| key), Some(b"b".to_vec()))?;
    drop(engine);
    equal("a record after the engine", read(b"a")?, Some(value("1")))
}

fn a_snapshot_with_its_head_is_a_cursor_of_the_log(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    engine.register("c", engine.head())?;
    let begin = engine.head();
    equal("the head of an empty view", engine.snapshot_with_head()?.1, begin)?;
    engine.commit(Commit { ops: vec![op(1)], ..put("a", "1") })?;
    let (snapshot, head) = engine.snapshot_with_head()?;
    equal("the head", head, engine.head())?;
    engine.commit(Commit { ops: vec![op(2)], ..delete("a") })?;
    equal("the record in the view", snapshot.get(b"a")?.map(|found| found.value), Some(value("1")))?;
    let later: Vec<_> = engine.log_after(head, 9)?.into_iter().map(|logged| logged.op).collect();
    equal("the ops after the view", later, vec![op(2).op])?;
    let (empty, head) = engine.snapshot_with_head()?;
    equal("the removed record", empty.get(b"a")?, None)?;
    equal("the head after a removal", head, engine.head())
}

fn keys_and_records_may_contain_any_bytes(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    let key: Vec<u8> = (0..=255).collect();
    let long: Vec<u8> = key.iter().copied().cycle().take(100_000).collect();
    let puts = vec![(key.clone(), long.clone().into()), (vec![7], Vec::new().into())];
    engine.commit(Commit { puts, ..Commit::default() })?;
    equal("a long record", engine.get(&key)?.map(|found| found.value.to_vec()), Some(long))?;
    equal("an empty record", engine.get(&[7])?.map(|found| found.value.len()), Some(0))
}
