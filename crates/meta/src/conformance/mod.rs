//! The test suite for every implementation of [`Engine`]: the behaviour on which the namespace relies, one case each.
//!
//! ```text
//! conformance::run(|cap| Ok(Arc::new(MemoryEngine::new(cap)))).unwrap();
//! ```
//!
//! Each case gets a new, empty engine from the factory. The suite fixes the following choices:
//! - a commit without writes and ops only checks its conditions, and changes neither versions nor head;
//! - a range condition ignores the keys that the commit itself writes;
//! - a merge into a missing record is a conflict, a merge into a record that is not an inode is an error, and neither changes
//!   anything;
//! - a read of the log returns whole commits; each page of a run's ops counts as a commit;
//! - a run's keys need not be new: its conditions say what must be true.

mod commits;
mod ingest;
mod log;
mod merges;
mod races;
mod reads;
mod replay;

pub use replay::{equals_replay, replayed};

use crate::engine::{Commit, Condition, Engine, LogCap, OpRecord};
use crate::record::{Seqno, Value};
use crate::{Content, Effect, EngineError, Ino, Inode, Kind, Moment, Op, OpContext, Origin, Refreshed};
use std::fmt;
use std::sync::Arc;
use store::Timestamp;

/// A description of the failure of a case.
#[derive(Debug)]
pub struct Broken(String);

impl<E: std::error::Error> From<E> for Broken {
    fn from(error: E) -> Self {
        Self(format!("unexpected error: {error}"))
    }
}

/// The result of a case.
type Outcome = Result<(), Broken>;

/// Creates an empty engine that keeps as much log as the cap allows.
type Factory<'a> = dyn Fn(LogCap) -> Result<Arc<dyn Engine>, EngineError> + 'a;

type Case = (&'static str, fn(&Factory<'_>) -> Outcome);

/// The failure of a case: the engine does not behave as the namespace requires.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{case}: {what}")]
pub struct Failure {
    /// The name of the case.
    pub case: &'static str,
    /// The difference from the expected behaviour.
    pub what: String,
}

/// Returns the inode of a directory without entries, as a value of records in tests of engines.
pub fn directory(number: u64) -> Inode {
    let at = Timestamp(5);
    Inode {
        ino: Ino(number),
        kind: Kind::Directory,
        mode: 0o755,
        uid: 0,
        gid: 0,
        nlink: 2,
        rdev: 0,
        size_bytes: 0,
        atime: at,
        mtime: at,
        ctime: at,
        btime: at,
        home: None,
        content: Content::EMPTY,
        target: None,
        exact: true,
        observed_at: Moment::default(),
    }
}

/// Runs all cases. Fails with the first failure.
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

fn holds(what: &str, is_true: bool) -> Outcome {
    if is_true { Ok(()) } else { Err(Broken(format!("does not hold: {what}"))) }
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

/// Returns an op that is identified by its number.
fn op(number: u64) -> OpRecord {
    let at = Moment { mount: 1, nanos: number };
    let context = OpContext { now: Timestamp(number as i64), at, uid: 1, gid: 2, origin: Origin::FrontEnd };
    let effect = Effect { inode: Some(Ino(number + 1)), other: None, refreshed: Refreshed::Attributes };
    OpRecord { context, op: Op::Purge { ino: Ino(number) }, effect }
}

fn text_of(engine: &dyn Engine, key: &str) -> Result<Option<String>, Broken> {
    let found = engine.get(key.as_bytes())?;
    Ok(found.map(|found| String::from_utf8_lossy(&found.value).into_owned()))
}
