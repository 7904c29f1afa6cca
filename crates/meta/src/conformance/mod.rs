//! One suite for every implementation of [`Engine`]: what the namespace relies on, one behaviour per case.
//!
//! ```text
//! conformance::run(|cap| Ok(Arc::new(MemoryEngine::new(cap)))).unwrap();
//! ```
//!
//! Each case gets a fresh, empty engine from the factory. Decided here, where an engine might choose: a commit without
//! writes and ops only checks its conditions, and changes neither versions nor head; a range condition overlooks what
//! the commit itself writes; a merge into a missing record is a conflict, one into a record that is no inode is an
//! error, and both change nothing; a log read returns whole commits.

mod commits;
mod ingest;
mod log;
mod merges;
mod races;
mod reads;

use crate::engine::{Commit, Condition, Engine, LogCap, Seqno, Value};
use crate::{Ctx, EngineError, Ino, Moment, Op};
use std::fmt;
use std::sync::Arc;
use store::Timestamp;

/// Why a case does not hold.
#[derive(Debug)]
pub struct Broken(String);

impl<E: std::error::Error> From<E> for Broken {
    fn from(error: E) -> Self {
        Self(format!("unexpected error: {error}"))
    }
}

/// What a case comes to.
type Outcome = Result<(), Broken>;

/// Makes an empty engine that keeps as much log as the cap says.
type Factory<'a> = dyn Fn(LogCap) -> Result<Arc<dyn Engine>, EngineError> + 'a;

type Case = (&'static str, fn(&Factory<'_>) -> Outcome);

/// An engine does not do what the namespace relies on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{case}: {what}")]
pub struct Failure {
    /// The case.
    pub case: &'static str,
    /// What is different.
    pub what: String,
}

/// Runs every case; the first that fails is the error.
pub fn run(factory: impl Fn(LogCap) -> Result<Arc<dyn Engine>, EngineError>) -> Result<(), Failure> {
    let families = [reads::CASES, commits::CASES, merges::CASES, log::CASES, ingest::CASES, races::CASES];
    for (case, check) in families.into_iter().flatten() {
        check(&factory).map_err(|Broken(what)| Failure { case, what })?;
    }
    Ok(())
}

fn fresh(factory: &Factory<'_>) -> Result<Arc<dyn Engine>, Broken> {
    Ok(factory(LogCap::default())?)
}

fn equal<T: PartialEq + fmt::Debug>(what: &str, found: T, expected: T) -> Outcome {
    if found == expected { Ok(()) } else { Err(Broken(format!("{what}: {found:?}, expected {expected:?}"))) }
}

fn holds(what: &str, truth: bool) -> Outcome {
    if truth { Ok(()) } else { Err(Broken(format!("not so: {what}"))) }
}

fn value(text: &str) -> Value {
    text.as_bytes().into()
}

fn put(key: &str, text: &str) -> Commit {
    Commit { puts: vec![(key.into(), value(text))], ..Commit::default() }
}

fn delete(key: &str) -> Commit {
    Commit { deletes: vec![key.into()], ..Commit::default() }
}

fn only_if(condition: Condition, commit: Commit) -> Commit {
    Commit { conditions: vec![condition], ..commit }
}

fn at_version(key: &str, version: Seqno) -> Condition {
    Condition::Version { key: key.into(), version }
}

fn present(key: &str) -> Condition {
    Condition::Present { key: key.into() }
}

fn absent(key: &str) -> Condition {
    Condition::Absent { key: key.into() }
}

/// An op that can be told from others by its number.
fn op(number: u64) -> (Ctx, Op) {
    let ctx = Ctx { now: Timestamp(number as i64), at: Moment { mount: 1, nanos: number }, uid: 1, gid: 2 };
    (ctx, Op::Purge { ino: Ino(number) })
}

fn text_of(engine: &dyn Engine, key: &str) -> Result<Option<String>, Broken> {
    let found = engine.get(key.as_bytes())?;
    Ok(found.map(|found| String::from_utf8_lossy(&found.value).into_owned()))
}
