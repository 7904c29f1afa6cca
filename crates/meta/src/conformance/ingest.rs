//! Cases for ingesting sorted runs.

use super::{Case, Factory, Outcome, absent, equal, fresh, holds, op, present, put, text_of, value};
use crate::engine::{BatchRecord, SortedRun};
use crate::error::CommitError;

pub(super) const CASES: &[Case] = &[
    ("a run and its ops are one commit", a_run_is_one_commit),
    ("a run over an existing key is a conflict", a_run_over_an_existing_key_is_a_conflict),
    ("a run is subject to its conditions", a_run_has_conditions),
    ("the keys of a run must ascend", keys_of_a_run_must_ascend),
];

fn run() -> SortedRun {
    let rows = (0..100).map(|n| (format!("r{n:03}").into_bytes(), value(&n.to_string()))).collect();
    SortedRun::new(rows).unwrap_or_default()
}

fn record() -> BatchRecord {
    BatchRecord { ops: vec![op(1), op(2)], ..BatchRecord::default() }
}

fn a_run_is_one_commit(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    let begin = engine.head();
    engine.register("c", begin)?;
    let seqno = engine.ingest(run(), record())?;
    let range = crate::KeyRange { from: b"r".to_vec(), to: b"s".to_vec() };
    let (from, to) = range.bounds();
    let rows = engine.scan(from, to, 1000)?;
    equal("rows", rows.len(), 100)?;
    holds("all rows have the version of the commit", rows.iter().all(|(_, row)| row.version == seqno))?;
    let log: Vec<_> =
        engine.log_after(begin, 10)?.into_iter().map(|logged| (logged.seqno, logged.op)).collect();
    equal("the log", log, vec![(seqno, op(1).op), (seqno, op(2).op)])
}

fn a_run_over_an_existing_key_is_a_conflict(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    engine.register("c", engine.head())?;
    let head = engine.commit(put("r050", "mine"))?;
    equal("the run", engine.ingest(run(), record()), Err(CommitError::Conflict))?;
    equal("head", engine.head(), head)?;
    equal("the existing key", text_of(&*engine, "r050")?.as_deref(), Some("mine"))?;
    equal("the first key", text_of(&*engine, "r000")?, None)?;
    equal("the log", engine.log_after(engine.cursor("c")?, 10)?, vec![])
}

fn a_run_has_conditions(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    let with = |condition| BatchRecord { conditions: vec![condition], ..record() };
    equal("present", engine.ingest(run(), with(present("k"))), Err(CommitError::Conflict))?;
    engine.ingest(run(), with(absent("k")))?;
    equal("a row", text_of(&*engine, "r099")?.as_deref(), Some("99"))
}

fn keys_of_a_run_must_ascend(_: &Factory<'_>) -> Outcome {
    let row = |key: &str| (key.as_bytes().to_vec(), value(""));
    holds("ascending", SortedRun::new(vec![row("a"), row("b")]).is_some())?;
    holds("equal keys", SortedRun::new(vec![row("a"), row("a")]).is_none())?;
    holds("descending", SortedRun::new(vec![row("b"), row("a")]).is_none())
}
