//! Cases with several threads on one engine.

use super::{Broken, Case, Factory, Outcome, at_version, equal, fresh, holds, only_if, put, value};
use crate::engine::{Commit, Engine};
use crate::error::CommitError;
use std::ops::Bound::Unbounded;
use std::thread;

pub(super) const CASES: &[Case] =
    &[("no update is lost", no_update_is_lost), ("readers see whole commits", readers_see_whole_commits)];

const THREADS: usize = 4;
const ROUNDS: usize = 100;

/// Returns the first failure of the joined threads.
fn first_failure(outcomes: impl IntoIterator<Item = thread::Result<Outcome>>) -> Outcome {
    outcomes
        .into_iter()
        .try_for_each(|joined| joined.unwrap_or_else(|_| Err(Broken("a thread panicked".into()))))
}

fn no_update_is_lost(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    engine.commit(put("n", "0"))?;
    let engine = &*engine;
    first_failure(thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| increment_counter(engine))).collect();
        threads.into_iter().map(thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    }))?;
    equal("the sum", read_counter(engine)?.0, THREADS * ROUNDS)
}

fn read_counter(engine: &dyn Engine) -> Result<(usize, crate::Seqno), Broken> {
    let found = engine.get(b"n")?.ok_or(Broken("the counter is missing".into()))?;
    let text = String::from_utf8_lossy(&found.value).into_owned();
    Ok((text.parse()?, found.version))
}

fn increment_counter(engine: &dyn Engine) -> Outcome {
    let mut done = 0;
    while done < ROUNDS {
        let (n, version) = read_counter(engine)?;
        match engine.commit(only_if(at_version("n", version), put("n", &(n + 1).to_string()))) {
            Ok(_) => done += 1,
            Err(CommitError::Conflict) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn readers_see_whole_commits(factory: &Factory<'_>) -> Outcome {
    let engine = fresh(factory)?;
    write_both(&*engine, 0)?;
    let engine = &*engine;
    first_failure(thread::scope(|scope| {
        let writer = scope.spawn(|| (1..ROUNDS).try_for_each(|round| write_both(engine, round)));
        let reader = scope.spawn(|| (0..ROUNDS).try_for_each(|_| read_both(engine)));
        [writer.join(), reader.join()]
    }))
}

fn write_both(engine: &dyn Engine, round: usize) -> Outcome {
    let text = value(&round.to_string());
    engine
        .commit(Commit { puts: vec![("a".into(), text.clone()), ("z".into(), text)], ..Commit::default() })?;
    Ok(())
}

fn read_both(engine: &dyn Engine) -> Outcome {
    let scanned = engine.scan(Unbounded, Unbounded, 10)?;
    holds("a scan sees one state", scanned[0].1 == scanned[1].1)?;
    let got = engine.multi_get(&[b"a".to_vec(), b"z".to_vec()])?;
    holds("a multi_get sees one state", got[0] == got[1])
}
