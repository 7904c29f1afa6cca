//! Cases for the op log and its consumers.

use super::{Case, Factory, Outcome, equal, fresh, holds, op, put};
use crate::engine::{Commit, Engine, LogCap, LoggedOp};
use crate::error::LogError;
use crate::record::Seqno;

pub(super) const CASES: &[Case] = &[
    ("ops are read in the order of their commits", ops_are_read_in_order),
    ("a read returns whole commits", a_read_returns_whole_commits),
    ("a commit without ops is not in the log", a_commit_without_ops_is_not_logged),
    ("the log after a consumer's cursor is kept", the_log_after_a_cursor_is_kept),
    ("a cursor never goes back", a_cursor_never_goes_back),
    ("a consumer that is too slow lags", a_slow_consumer_lags),
    ("a consumer can be registered again and removed", a_consumer_can_be_removed),
    ("without consumers only a tail of the log is kept", without_consumers_only_a_tail_is_kept),
];

fn commit_ops(engine: &dyn Engine, numbers: &[u64]) -> Result<Seqno, super::Broken> {
    let ops = numbers.iter().map(|number| op(*number)).collect();
    Ok(engine.commit(Commit { ops, ..put("k", "v") })?)
}

fn logged(seqno: Seqno, number: u64) -> LoggedOp {
    LoggedOp::new(seqno, op(number))
}

fn ops_are_read_in_order(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    let begin = engine.head();
    engine.register("c", begin)?;
    let first = commit_ops(&*engine, &[1, 2])?;
    let second = commit_ops(&*engine, &[3])?;
    let all = vec![logged(first, 1), logged(first, 2), logged(second, 3)];
    equal("all", engine.log_after(begin, 10)?, all)?;
    equal("after the first commit", engine.log_after(first, 10)?, vec![logged(second, 3)])?;
    equal("at the head", engine.log_after(second, 10)?, vec![])
}

fn a_read_returns_whole_commits(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    let begin = engine.head();
    engine.register("c", begin)?;
    for round in 0..10 {
        commit_ops(&*engine, &[round * 3, round * 3 + 1, round * 3 + 2])?;
    }
    let (mut cursor, mut seen) = (begin, Vec::new());
    loop {
        let page = engine.log_after(cursor, 4)?;
        let Some(last) = page.last() else { break };
        holds("a page is not much longer than its limit", page.len() <= 6)?;
        cursor = last.seqno;
        seen.extend(page.into_iter().map(|logged| logged.context.now.0 as u64));
    }
    equal("all ops, each once", seen, (0..30).collect())
}

fn a_commit_without_ops_is_not_logged(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    let begin = engine.head();
    engine.register("c", begin)?;
    engine.commit(put("k", "v"))?;
    equal("the log", engine.log_after(begin, 10)?, vec![])
}

fn with_small_log(
    factory: &Factory<'_>,
    bytes_max: u64,
) -> Result<std::sync::Arc<dyn Engine>, super::Broken> {
    Ok(factory(LogCap { bytes_max, tail_ops: 2, ..LogCap::default() })?)
}

fn the_log_after_a_cursor_is_kept(factory: &Factory<'_>) -> Outcome {
    let engine = with_small_log(factory, 1 << 20)?;
    let begin = engine.head();
    engine.register("slow", begin)?;
    engine.register("fast", begin)?;
    let mut seqnos = Vec::new();
    for number in 0..50 {
        let seqno = commit_ops(&*engine, &[number])?;
        engine.advance("fast", seqno)?;
        seqnos.push(seqno);
    }
    equal("for the slow one", engine.log_after(engine.cursor("slow")?, 100)?.len(), 50)?;
    engine.advance("slow", seqnos[29])?;
    equal("the slow one's cursor", engine.cursor("slow")?, seqnos[29])?;
    equal("for the slow one after advancing", engine.log_after(engine.cursor("slow")?, 100)?.len(), 20)
}

fn a_cursor_never_goes_back(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    let begin = engine.head();
    engine.register("c", begin)?;
    let first = commit_ops(&*engine, &[1])?;
    engine.advance("c", first)?;
    engine.advance("c", begin)?;
    equal("the cursor", engine.cursor("c")?, first)
}

fn is_lagged<T>(result: Result<T, LogError>) -> bool {
    matches!(result, Err(LogError::Lagged { .. }))
}

fn a_slow_consumer_lags(factory: &Factory<'_>) -> Outcome {
    let engine = with_small_log(factory, 2000)?;
    let begin = engine.head();
    engine.register("slow", begin)?;
    engine.register("fast", begin)?;
    for number in 0..500 {
        let seqno = commit_ops(&*engine, &[number])?;
        engine.advance("fast", seqno)?;
    }
    holds("the cap cuts the log", is_lagged(engine.log_after(begin, 1)))?;
    holds("the slow one lags", is_lagged(engine.cursor("slow")))?;
    holds("no consumer can register before the cut", is_lagged(engine.register("late", begin)))?;
    equal("the fast one does not lag", engine.cursor("fast")?, engine.head())?;
    engine.register("slow", engine.head())?;
    equal("the slow one after registering again", engine.cursor("slow")?, engine.head())
}

fn a_consumer_can_be_removed(factory: &Factory<'_>) -> Outcome {
    let engine = with_small_log(factory, 1 << 20)?;
    let unknown = Err(LogError::NoConsumer("c".into()));
    equal("an unknown consumer", engine.cursor("c"), unknown.clone())?;
    equal(
        "an unknown consumer's advance",
        engine.advance("c", engine.head()),
        Err(LogError::NoConsumer("c".into())),
    )?;
    engine.register("c", engine.head())?;
    let first = commit_ops(&*engine, &[1])?;
    engine.register("c", first)?;
    equal("registered again", engine.cursor("c")?, first)?;
    engine.forget_consumer("c")?;
    engine.forget_consumer("c")?;
    equal("a removed consumer", engine.cursor("c"), unknown)
}

fn without_consumers_only_a_tail_is_kept(factory: &Factory<'_>) -> Outcome {
    let engine = with_small_log(factory, 1 << 20)?;
    let begin = engine.head();
    for number in 0..100 {
        commit_ops(&*engine, &[number])?;
    }
    holds("the beginning of the log has been cut off", is_lagged(engine.log_after(begin, 1)))?;
    equal("the head can be read", engine.log_after(engine.head(), 1)?, vec![])
}
