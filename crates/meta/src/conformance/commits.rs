//! Cases for commits: versions, conditions, atomicity.

use super::{
    Broken, Case, Factory, Outcome, absent, at_version, delete, equal, fresh, holds, only_if, op, present,
    put, text_of, value,
};
use crate::engine::{Commit, Condition, Engine};
use crate::error::CommitError;
use crate::record::{KeyRange, Seqno};

pub(super) const CASES: &[Case] = &[
    ("each commit has a higher number", each_commit_has_a_higher_number),
    ("a version is that of the last write", a_version_is_that_of_the_last_write),
    ("a condition on an old version is a conflict", an_old_version_is_a_conflict),
    ("conditions on present and absent keys", present_and_absent_conditions),
    ("a condition on an empty range", range_empty_condition),
    ("a range condition ignores the commit's own keys", own_keys_are_ignored),
    ("a conflict changes nothing", a_conflict_changes_nothing),
    ("a check changes nothing", a_check_changes_nothing),
    ("a key that is removed and put again has a new version", a_recreated_key_has_a_new_version),
    ("a sync keeps all commits", a_sync_keeps_everything),
    ("removing a missing key is no error", removing_a_missing_key_is_no_error),
];

fn conflicts(what: &str, engine: &dyn Engine, commit: Commit) -> Outcome {
    equal(what, engine.commit(commit), Err(CommitError::Conflict))
}

fn version(engine: &dyn Engine, key: &str) -> Result<Seqno, Broken> {
    let found = engine.get(key.as_bytes())?.ok_or_else(|| Broken(format!("{key} is missing")))?;
    Ok(found.version)
}

fn each_commit_has_a_higher_number(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    let mut last = engine.head();
    for round in 0..5 {
        let next = engine.commit(put("k", &round.to_string()))?;
        holds("a commit's number is higher than the previous one", next > last)?;
        equal("head", engine.head(), next)?;
        last = next;
    }
    Ok(())
}

fn a_version_is_that_of_the_last_write(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    let first = engine.commit(put("a", "1"))?;
    let second = engine.commit(put("b", "1"))?;
    equal("the untouched key", version(&*engine, "a")?, first)?;
    let third = engine.commit(put("a", "1"))?;
    equal("the same record put again", version(&*engine, "a")?, third)?;
    equal("the other key", version(&*engine, "b")?, second)
}

fn an_old_version_is_a_conflict(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    let first = engine.commit(put("k", "1"))?;
    let second = engine.commit(only_if(at_version("k", first), put("k", "2")))?;
    conflicts("the old version", &*engine, only_if(at_version("k", first), put("k", "3")))?;
    engine.commit(only_if(at_version("k", second), put("k", "3")))?;
    conflicts("a missing key", &*engine, only_if(at_version("x", second), put("x", "1")))?;
    equal("the record", text_of(&*engine, "k")?.as_deref(), Some("3"))
}

fn present_and_absent_conditions(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    conflicts("present, without a record", &*engine, only_if(present("k"), put("x", "1")))?;
    engine.commit(only_if(absent("k"), put("k", "1")))?;
    conflicts("absent, with a record", &*engine, only_if(absent("k"), put("k", "2")))?;
    engine.commit(put("k", "3"))?;
    engine.commit(only_if(present("k"), put("k", "4")))?;
    engine.commit(delete("k"))?;
    conflicts("present, after removal", &*engine, only_if(present("k"), put("k", "5")))?;
    engine.commit(only_if(absent("k"), put("k", "6")))?;
    Ok(())
}

fn range(from: &str, to: &str) -> Condition {
    Condition::RangeEmpty(KeyRange { from: from.into(), to: to.into() })
}

fn range_empty_condition(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    engine.commit(put("b", "1"))?;
    engine.commit(put("d", "1"))?;
    engine.commit(only_if(range("b\0", "d"), put("x", "1")))?;
    engine.commit(only_if(range("c", "c"), put("x", "2")))?;
    conflicts("the first key of the range", &*engine, only_if(range("b", "c"), put("x", "3")))?;
    conflicts("a key in the middle", &*engine, only_if(range("a", "c"), put("x", "4")))?;
    equal("the record", text_of(&*engine, "x")?.as_deref(), Some("2"))
}

fn own_keys_are_ignored(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    engine.commit(put("b1", "1"))?;
    engine.commit(put("b2", "1"))?;
    conflicts("one of two keys is removed", &*engine, only_if(range("b", "c"), delete("b1")))?;
    let both = Commit { deletes: vec!["b1".into(), "b2".into()], ..Commit::default() };
    engine.commit(only_if(range("b", "c"), both))?;
    engine.commit(only_if(range("b", "c"), put("b3", "1")))?;
    engine.commit(only_if(range("b", "c"), put("b3", "2")))?;
    conflicts("a key of another commit", &*engine, only_if(range("b", "c"), put("b4", "1")))
}

fn a_conflict_changes_nothing(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    engine.register("c", engine.head())?;
    let head = engine.commit(put("k", "1"))?;
    let commit = Commit {
        conditions: vec![present("k"), absent("k")],
        puts: vec![("k".into(), value("2")), ("new".into(), value("1"))],
        deletes: vec!["k2".into()],
        merges: vec![],
        ops: vec![op(1)],
    };
    conflicts("one of two conditions", &*engine, commit)?;
    equal("head", engine.head(), head)?;
    equal("the record", text_of(&*engine, "k")?.as_deref(), Some("1"))?;
    equal("the new key", text_of(&*engine, "new")?, None)?;
    equal("the log", engine.log_after(engine.cursor("c")?, 10)?, vec![])
}

fn a_check_changes_nothing(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    let head = engine.commit(put("k", "1"))?;
    engine.commit(only_if(at_version("k", head), Commit::default()))?;
    conflicts("a check that fails", &*engine, only_if(absent("k"), Commit::default()))?;
    equal("head", engine.head(), head)?;
    equal("version", version(&*engine, "k")?, head)
}

fn a_recreated_key_has_a_new_version(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    let first = engine.commit(put("k", "1"))?;
    engine.commit(delete("k"))?;
    engine.commit(put("k", "1"))?;
    conflicts("the version before the removal", &*engine, only_if(at_version("k", first), put("k", "2")))
}

fn a_sync_keeps_everything(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    engine.sync()?;
    let head = engine.commit(put("k", "1"))?;
    engine.sync()?;
    engine.sync()?;
    equal("head", engine.head(), head)?;
    equal("the record", text_of(&*engine, "k")?.as_deref(), Some("1"))
}

fn removing_a_missing_key_is_no_error(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    engine.commit(delete("k"))?;
    equal("the key", text_of(&*engine, "k")?, None)
}
