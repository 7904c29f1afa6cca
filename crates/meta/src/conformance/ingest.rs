//! Cases for runs.

use super::{
    Broken, Case, Factory, Outcome, absent, at_version, delete, equal, fresh, holds, op, present, put,
    text_of,
};
use crate::engine::{Commit, Condition, Engine, LogCap};
use crate::error::CommitError;
use crate::record::{KeyRange, Seqno};
use crate::run::{LOG_PAGE_OPS, Run, RunRecord};
use crate::{Reader, codec, schema};

pub(super) const CASES: &[Case] = &[
    ("a run is one commit", a_run_is_one_commit),
    ("a run is not seen before it is added", a_run_is_not_seen_before),
    ("a run replaces and removes records", a_run_replaces_and_removes),
    ("a run is subject to its conditions", a_run_has_conditions),
    ("a run can be added after a conflict", a_run_can_be_added_after_a_conflict),
    ("the records of a run have a version of their own", a_run_has_a_version),
    ("a run merges into other records", a_run_merges),
    ("the keys of a run must ascend", keys_of_a_run_must_ascend),
    ("the ops of a run are read page by page", ops_are_read_page_by_page),
    ("a run does not make a consumer lag", a_run_does_not_make_a_consumer_lag),
    ("a run is kept in the log for consumers only", a_run_is_kept_for_consumers_only),
    ("commits continue while a run is built", commits_continue_while_a_run_is_built),
];

/// Few rows, which an engine may keep in memory, and enough rows for a table of their own.
const SIZES: [usize; 2] = [100, 10_000];

fn key(nr: usize) -> String {
    format!("r{nr:06}")
}

/// Builds a run that puts `rows` records and logs `ops` ops.
fn build<'e>(engine: &'e dyn Engine, rows: usize, ops: usize) -> Result<Box<dyn Run + 'e>, Broken> {
    let mut run = engine.begin_run()?;
    for nr in 0..rows {
        run.put(key(nr).as_bytes(), nr.to_string().as_bytes())?;
    }
    for nr in 0..ops {
        run.log(&op(nr as u64))?;
    }
    Ok(run.finish()?)
}

fn only_if(condition: Condition) -> RunRecord {
    RunRecord { conditions: vec![condition], ..RunRecord::default() }
}

fn range() -> KeyRange {
    KeyRange { from: b"r".to_vec(), to: b"s".to_vec() }
}

fn count(engine: &dyn Reader) -> Result<usize, Broken> {
    let range = range();
    let (from, to) = range.bounds();
    Ok(engine.scan(from, to, usize::MAX)?.len())
}

fn version(engine: &dyn Engine, key: &str) -> Result<Seqno, Broken> {
    Ok(engine.get(key.as_bytes())?.ok_or_else(|| Broken(format!("{key} is missing")))?.version)
}

fn a_run_is_one_commit(factory: &Factory<'_>) -> Outcome {
    for rows in SIZES {
        let engine = fresh(factory)?;
        let begin = engine.head();
        engine.register("c", begin)?;
        let before = engine.snapshot()?;
        let seqno = build(&*engine, rows, 2)?.ingest(&RunRecord::default())?;
        equal("rows", count(&*engine)?, rows)?;
        equal("the last row", text_of(&*engine, &key(rows - 1))?, Some((rows - 1).to_string()))?;
        equal("head", engine.head(), seqno)?;
        equal("rows in a snapshot taken before", count(&*before)?, 0)?;
        let log = engine.log_after(begin, 10)?.into_iter().map(|logged| (logged.seqno, logged.op));
        equal("the log", log.collect(), vec![(seqno, op(0).op), (seqno, op(1).op)])?;
        let next = engine.commit(put(&key(0), "newer"))?;
        holds("the next commit has a higher number", next > seqno)?;
        equal("a record that is put again", text_of(&*engine, &key(0))?.as_deref(), Some("newer"))?;
    }
    Ok(())
}

fn a_run_is_not_seen_before(factory: &Factory<'_>) -> Outcome {
    for rows in SIZES {
        let engine = fresh(factory)?;
        engine.register("c", engine.head())?;
        let run = build(&*engine, rows, 2)?;
        equal("rows before", count(&*engine)?, 0)?;
        equal("the log before", engine.log_after(engine.cursor("c")?, 10)?, vec![])?;
        drop(run);
        equal("rows of a run that was dropped", count(&*engine)?, 0)?;
        drop(engine.begin_run()?);
        build(&*engine, rows, 0)?.ingest(&RunRecord::default())?;
        equal("rows of another run", count(&*engine)?, rows)?;
    }
    Ok(())
}

fn a_run_replaces_and_removes(factory: &Factory<'_>) -> Outcome {
    for rows in SIZES {
        let engine = fresh(factory)?;
        engine.commit(put("r000001", "old"))?;
        engine.commit(put("q", "old"))?;
        engine.commit(put("s", "old"))?;
        engine.commit(put("r000002", "removed before the run"))?;
        engine.commit(delete("r000002"))?;
        let mut run = engine.begin_run()?;
        run.delete(b"missing")?;
        run.delete(b"q")?;
        for nr in 0..rows {
            run.put(key(nr).as_bytes(), b"new")?;
        }
        run.delete(b"s")?;
        run.finish()?.ingest(&RunRecord::default())?;
        equal("a replaced record", text_of(&*engine, "r000001")?.as_deref(), Some("new"))?;
        equal("a record that had been removed", text_of(&*engine, "r000002")?.as_deref(), Some("new"))?;
        equal("a removed record before", text_of(&*engine, "q")?, None)?;
        equal("a removed record after", text_of(&*engine, "s")?, None)?;
        let removed = only_if(absent("q"));
        build(&*engine, 1, 0)?.ingest(&removed)?;
    }
    Ok(())
}

fn a_run_has_conditions(factory: &Factory<'_>) -> Outcome {
    for rows in SIZES {
        let engine = fresh(factory)?;
        let other = engine.commit(put("k", "1"))?;
        engine.register("c", engine.head())?;
        let refused = |what: &str, condition| {
            let head = {
                let mut run = build(&*engine, rows, 1)?;
                let head = engine.head();
                equal(what, run.ingest(&only_if(condition)), Err(CommitError::Conflict))?;
                head
            };
            equal("head", engine.head(), head)?;
            equal("rows", count(&*engine)?, 0)?;
            equal("the log", engine.log_after(engine.cursor("c")?, 10)?, vec![])
        };
        refused("present", present("x"))?;
        refused("absent", absent("k"))?;
        refused("version", at_version("k", Seqno(other.0 + 1)))?;
        refused("range", Condition::RangeEmpty(KeyRange { from: b"a".to_vec(), to: b"z".to_vec() }))?;
        let held = vec![present("k"), absent("x"), at_version("k", other), Condition::RangeEmpty(range())];
        let record = RunRecord { conditions: held, ..RunRecord::default() };
        build(&*engine, rows, 1)?.ingest(&record)?;
        equal("rows", count(&*engine)?, rows)?;
        let mut again = build(&*engine, rows, 1)?;
        equal(
            "a range with the run's own keys",
            again.ingest(&only_if(Condition::RangeEmpty(range()))),
            Err(CommitError::Conflict),
        )?;
    }
    Ok(())
}

fn a_run_can_be_added_after_a_conflict(factory: &Factory<'_>) -> Outcome {
    for rows in SIZES {
        let engine = fresh(factory)?;
        let first = engine.commit(put("k", "1"))?;
        let mut run = build(&*engine, rows, 1)?;
        let second = engine.commit(put("k", "2"))?;
        equal("the old version", run.ingest(&only_if(at_version("k", first))), Err(CommitError::Conflict))?;
        run.ingest(&only_if(at_version("k", second)))?;
        equal("rows", count(&*engine)?, rows)?;
    }
    Ok(())
}

fn a_run_has_a_version(factory: &Factory<'_>) -> Outcome {
    for rows in SIZES {
        let engine = fresh(factory)?;
        let mut runs = [build(&*engine, rows, 0)?, build(&*engine, rows, 0)?];
        let mut versions = vec![engine.commit(put("k", "1"))?];
        for run in &mut runs {
            versions.push(run.ingest(&RunRecord::default())?);
            versions.push(version(&*engine, &key(0))?);
            equal(
                "the last record's version",
                version(&*engine, &key(rows - 1))?,
                version(&*engine, &key(0))?,
            )?;
        }
        versions.push(engine.commit(put("k", "2"))?);
        versions.sort_unstable();
        holds("no version is used twice", versions.is_sorted_by(|a, b| a < b))?;
        let stale = Commit { conditions: vec![at_version(&key(0), versions[0])], ..put("k", "3") };
        equal("a stale version", engine.commit(stale), Err(CommitError::Conflict))?;
        let known = version(&*engine, &key(0))?;
        engine.commit(Commit { conditions: vec![at_version(&key(0), known)], ..put(&key(0), "3") })?;
    }
    Ok(())
}

fn a_run_merges(factory: &Factory<'_>) -> Outcome {
    for rows in SIZES {
        let engine = fresh(factory)?;
        let merges = super::merges::entry_merge("I");
        let record = RunRecord { merges: vec![merges], ..RunRecord::default() };
        let mut run = build(&*engine, rows, 0)?;
        equal("a merge into a missing record", run.ingest(&record), Err(CommitError::Conflict))?;
        super::merges::put_inode(&*engine)?;
        let seqno = run.ingest(&record)?;
        let found = engine.get(b"I")?.ok_or(Broken("the record is missing".into()))?;
        equal("version", found.version, seqno)?;
        equal("links", codec::decode_inode(crate::Ino(0), &found.value)?.inode.nlink, 3)?;
    }
    Ok(())
}

fn keys_of_a_run_must_ascend(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    let mut run = engine.begin_run()?;
    run.put(b"b", b"1")?;
    holds("an equal key", run.put(b"b", b"1").is_err() && run.delete(b"b").is_err())?;
    holds("a lower key", run.put(b"a", b"1").is_err() && run.delete(b"a").is_err())?;
    run.delete(b"c")?;
    holds("a lower key than that of a removal", run.put(b"bb", b"1").is_err())?;
    run.put(b"d", b"1")?;
    for kept in [
        schema::head(),
        schema::consumer("c"),
        schema::logged_run(Seqno(1)),
        schema::run_log_page(Seqno(1), 0),
    ] {
        let mut run = engine.begin_run()?;
        holds("a key of the engine", run.put(&kept, b"1").is_err() && run.delete(&kept).is_err())?;
    }
    run.finish()?.ingest(&RunRecord::default())?;
    equal("a record", text_of(&*engine, "d")?.as_deref(), Some("1"))
}

fn ops_are_read_page_by_page(factory: &Factory<'_>) -> Outcome {
    for pages in [3, 60] {
        let engine = fresh(factory)?;
        let begin = engine.head();
        engine.register("c", begin)?;
        engine.commit(Commit { ops: vec![op(1000)], ..put("k", "1") })?;
        let ops = pages * LOG_PAGE_OPS as usize - 1;
        let seqno = build(&*engine, 1, ops)?.ingest(&RunRecord::default())?;
        engine.commit(Commit { ops: vec![op(2000)], ..put("k", "1") })?;
        let (mut cursor, mut seen, mut reads) = (begin, Vec::new(), 0);
        loop {
            let page = engine.log_after(cursor, 10)?;
            let Some(last) = page.last() else { break };
            holds("a page is bounded", page.len() <= LOG_PAGE_OPS as usize + 10)?;
            cursor = last.seqno;
            engine.advance("c", cursor)?;
            equal("the cursor", engine.cursor("c")?, cursor)?;
            seen.extend(page.into_iter().map(|logged| logged.context.now.0));
            reads += 1;
        }
        let numbers = std::iter::once(1000).chain(0..ops as i64).chain([2000]);
        equal("all ops, each once", seen, numbers.collect())?;
        holds("the run was read in pages", reads >= pages)?;
        holds("the commit's number is that of the last page", seqno < cursor)?;
    }
    Ok(())
}

fn a_run_does_not_make_a_consumer_lag(factory: &Factory<'_>) -> Outcome {
    let engine = factory(LogCap { bytes_max: 2000, tail_ops: 2, ..LogCap::default() })?;
    let begin = engine.head();
    engine.register("c", begin)?;
    let ops = 5000;
    build(&*engine, 1, ops)?.ingest(&RunRecord::default())?;
    equal("the cursor", engine.cursor("c")?, begin)?;
    equal("the ops", engine.log_after(begin, usize::MAX)?.len(), ops)?;
    let engine = factory(LogCap { run_bytes_max: 2000, ..LogCap::default() })?;
    engine.register("c", engine.head())?;
    build(&*engine, 1, ops)?.ingest(&RunRecord::default())?;
    holds("the cap of runs cuts the log", engine.cursor("c").is_err())
}

fn a_run_is_kept_for_consumers_only(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    let begin = engine.head();
    engine.register("c", begin)?;
    build(&*engine, 1, 5000)?.ingest(&RunRecord::default())?;
    equal("for the consumer", engine.log_after(begin, usize::MAX)?.len(), 5000)?;
    engine.advance("c", engine.head())?;
    engine.commit(Commit { ops: vec![op(1)], ..put("k", "1") })?;
    holds("the run has been cut off", engine.log_after(begin, 1).is_err())?;
    equal("the ops after it", engine.log_after(engine.cursor("c")?, 10)?.len(), 1)
}

fn commits_continue_while_a_run_is_built(factory: &Factory<'_>) -> Outcome {
    for rows in SIZES {
        let engine = fresh(factory)?;
        let begin = engine.head();
        engine.register("c", begin)?;
        let mut run = engine.begin_run()?;
        for nr in 0..rows {
            run.put(key(nr).as_bytes(), b"v")?;
            if nr % (rows / 10) == 0 {
                engine.commit(Commit { ops: vec![op(nr as u64)], ..put("k", "v") })?;
            }
        }
        let mut run = run.finish()?;
        engine.commit(Commit { ops: vec![op(1)], ..put("k", "last") })?;
        run.ingest(&RunRecord::default())?;
        equal("rows", count(&*engine)?, rows)?;
        equal("the other record", text_of(&*engine, "k")?.as_deref(), Some("last"))?;
        equal("the log", engine.log_after(begin, 100)?.len(), 11)?;
    }
    Ok(())
}
