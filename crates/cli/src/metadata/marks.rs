//! Marks in an engine that say whether its names are complete and in use.
//!
//! A mark is a consumer of the op log: every engine keeps it durably, and apart from the records, so that dumps and backups do not contain it.
//!
//! | marks | names |
//! |---|---|
//! | none | in use, or of unknown origin: never replaced |
//! | `load` | incomplete: `tenon load` or `tenon restore` is filling the engine, or was interrupted |
//! | `spare` | complete. In use only if the volume's record names the engine; otherwise they may be replaced |
//! | `unused` | restored by `tenon restore`. While the newest commit is the one at which the mark was set, nothing has changed the names, and another restoration may replace them |
//!
//! Invariant: before the volume's record is changed, the engine that it names and the one that it will name are both marked as `spare`. So an
//! interruption never leaves names that are not in use without a mark.

use anyhow::{Context, Result};
use meta::{Commit, Condition, Engine, EngineError, Ino, LogError, schema};
use std::ops::Bound;

/// The mark of an engine that does not have all names yet.
const INCOMPLETE: &str = "load";

/// The mark of an engine whose names may not be in use.
const SPARE: &str = "spare";

/// The mark of an engine whose names come from a backup, and have not been served yet.
const UNUSED: &str = "unused";

/// Returns whether an engine has no records.
pub(super) fn is_empty(engine: &dyn Engine) -> Result<bool, EngineError> {
    Ok(engine.scan(Bound::Unbounded, Bound::Unbounded, 1)?.is_empty())
}

/// Returns whether an engine does not have all names.
pub(super) fn is_incomplete(engine: &dyn Engine) -> Result<bool> {
    has(engine, INCOMPLETE)
}

/// Returns whether the names of an engine are complete, and in use only if the volume's record says so.
pub(super) fn is_spare(engine: &dyn Engine) -> Result<bool> {
    has(engine, SPARE)
}

/// Marks an empty engine before it is filled.
pub(super) fn set_incomplete(engine: &dyn Engine) -> Result<()> {
    Ok(engine.register(INCOMPLETE, engine.head())?)
}

/// Marks an engine that has all names, before or after it is in use.
pub(super) fn set_spare(engine: &dyn Engine) -> Result<()> {
    engine.register(SPARE, engine.head())?;
    Ok(engine.forget_consumer(INCOMPLETE)?)
}

/// Marks an engine that has all names of a backup, before it is in use.
pub(super) fn set_unused(engine: &dyn Engine) -> Result<()> {
    Ok(engine.register(UNUSED, engine.head())?)
}

/// Returns whether the names of an engine come from a backup, and nothing has changed them since.
pub(super) fn is_unused(engine: &dyn Engine) -> Result<bool> {
    match engine.cursor(UNUSED) {
        Ok(at) => Ok(at == engine.head()),
        Err(LogError::NoConsumer(_) | LogError::Lagged { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Notes that the names of an engine are served, so that no restoration replaces them.
pub(super) fn set_used(engine: &dyn Engine) -> Result<()> {
    if has(engine, UNUSED)? {
        engine.forget_consumer(UNUSED)?;
    }
    Ok(())
}

/// Removes the marks of an engine that the volume's record names.
pub(super) fn put_in_charge(engine: &dyn Engine) -> Result<()> {
    Ok(engine.forget_consumer(SPARE)?)
}

/// Fails if another process has taken over the database of an exclusive session.
pub(super) fn check_session(engine: &dyn Engine) -> Result<()> {
    let root = Condition::Present { key: schema::inode(Ino::ROOT) };
    engine
        .commit(Commit { conditions: vec![root], ..Commit::default() })
        .context("another process has used the database meanwhile; run the command again")?;
    Ok(())
}

fn has(engine: &dyn Engine, mark: &str) -> Result<bool> {
    match engine.cursor(mark) {
        Ok(_) | Err(LogError::Lagged { .. }) => Ok(true),
        Err(LogError::NoConsumer(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
