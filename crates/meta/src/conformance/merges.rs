//! Cases for merges into inode records.

use super::{Broken, Case, Factory, Outcome, at_version, equal, fresh, holds, only_if, op, put};
use crate::codec::{decode_inode, encode_inode};
use crate::engine::{Commit, Engine};
use crate::error::CommitError;
use crate::{Ino, Inode, Merge, Moment};
use store::Timestamp;

pub(super) const CASES: &[Case] = &[
    ("a merge adds links and never sets a time back", a_merge_adds_links_and_keeps_the_later_times),
    ("a merge gives the record a new version", a_merge_gives_a_new_version),
    ("a merge into a missing record is a conflict", a_merge_into_a_missing_record_is_a_conflict),
    ("a merge that fails changes nothing", a_failed_merge_changes_nothing),
];

const KEY: &str = "I";

fn inode(nlink: u32, time: i64) -> Inode {
    let time = Timestamp(time);
    let observed_at = Moment { mount: 1, nanos: 100 };
    Inode { nlink, atime: time, mtime: time, ctime: time, btime: time, observed_at, ..super::directory(0) }
}

pub(super) fn put_inode(engine: &dyn Engine) -> Outcome {
    engine.commit(Commit {
        puts: vec![(KEY.into(), encode_inode(&inode(2, 100)).into())],
        ..Commit::default()
    })?;
    Ok(())
}

fn merge(nlink: i32, mtime: i64, ctime: i64) -> Commit {
    let merge = Merge::Inode { nlink, mtime: Timestamp(mtime), ctime: Timestamp(ctime) };
    Commit { merges: vec![(KEY.into(), merge)], ..Commit::default() }
}

/// Returns the merge of a new subdirectory.
pub(super) fn entry_merge(key: &str) -> (Vec<u8>, Merge) {
    (key.into(), Merge::entry(Timestamp(200), 1))
}

fn read(engine: &dyn Engine) -> Result<Inode, Broken> {
    let found = engine.get(KEY.as_bytes())?.ok_or(Broken("the record is missing".into()))?;
    Ok(decode_inode(Ino(0), &found.value)?.inode)
}

fn a_merge_adds_links_and_keeps_the_later_times(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    put_inode(&*engine)?;
    engine.commit(merge(1, 200, 50))?;
    engine.commit(merge(2, 150, 120))?;
    engine.commit(merge(-1, i64::MIN, i64::MIN))?;
    let expected = Inode { nlink: 4, mtime: Timestamp(200), ctime: Timestamp(120), ..inode(2, 100) };
    equal("the inode", read(&*engine)?, expected)
}

fn a_merge_gives_a_new_version(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    put_inode(&*engine)?;
    let before = engine.head();
    let merged = engine.commit(merge(1, 0, 0))?;
    equal("version", engine.get(KEY.as_bytes())?.map(|found| found.version), Some(merged))?;
    let stale = only_if(at_version(KEY, before), put(KEY, "x"));
    equal("a write that requires the old version", engine.commit(stale), Err(CommitError::Conflict))
}

fn a_merge_into_a_missing_record_is_a_conflict(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    equal("a merge into a missing record", engine.commit(merge(1, 0, 0)), Err(CommitError::Conflict))
}

fn a_failed_merge_changes_nothing(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    engine.register("c", engine.head())?;
    put_inode(&*engine)?;
    let head = engine.head();
    let below_zero = Commit { ops: vec![op(1)], puts: vec![("x".into(), [1][..].into())], ..merge(-3, 0, 0) };
    let refused = matches!(engine.commit(below_zero), Err(CommitError::Engine(_)));
    holds("a negative link count is an error", refused)?;
    equal("the inode", read(&*engine)?, inode(2, 100))?;
    equal("another record", engine.get(b"x")?, None)?;
    equal("head", engine.head(), head)?;
    engine.commit(put(KEY, "not an inode"))?;
    holds(
        "a merge into a record that is not an inode is an error",
        matches!(engine.commit(merge(1, 0, 0)), Err(CommitError::Engine(_))),
    )
}
