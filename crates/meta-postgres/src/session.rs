//! Sessions: the row of an open engine, by which the outcome of a lost answer is found, and exclusive access to a volume.
//!
//! Invariant: at most one transaction of a session can commit after its row was read at its current generation.

use crate::connection::Connection;
use crate::error::{Failure, OpenError};
use crate::reads::{column, seqno};
use meta::{CommitError, EngineError, Seqno};
use std::time::Duration;
use tokio_postgres::{Client, Row};

/// Interval at which an idle session shows that it is alive.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(5);

/// Seconds after its last sign of life in which a session keeps its exclusive access.
const LEASE_S: i64 = 30;

/// The number of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionId(pub(crate) i64);

/// The row of a session, which describes its last group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionState {
    pub(crate) generation: i64,
    pub(crate) last_group: i64,
    pub(crate) outcome: Outcome,
    pub(crate) head: Seqno,
}

/// The outcome of a group: the head before it, and the numbers of the commits that conflicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) base: Seqno,
    pub(crate) failed: Vec<i32>,
}

impl Outcome {
    /// Returns the answer to a commit of the group. `is_check` says that it changes nothing.
    pub(crate) fn answer(&self, number: i32, is_check: bool) -> Result<Seqno, CommitError> {
        match self.failed.contains(&number) {
            true => Err(CommitError::Conflict),
            false if is_check => Ok(self.base),
            false => Ok(Seqno(self.base.0 + u64::from(number.unsigned_abs()))),
        }
    }
}

/// Begins a session. `holder` describes this process; the same holder takes exclusive access over from its earlier session at once.
pub(crate) async fn begin(client: &Client, holder: &str, is_exclusive: bool) -> Result<SessionId, OpenError> {
    client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED").await.map_err(refused)?;
    let begun = begin_locked(client, holder, is_exclusive).await;
    let end = if begun.is_ok() { "COMMIT" } else { "ROLLBACK" };
    client.batch_execute(end).await.map_err(refused)?;
    begun
}

async fn begin_locked(client: &Client, holder: &str, is_exclusive: bool) -> Result<SessionId, OpenError> {
    let row = client.query_one("SELECT sessions, owner FROM head FOR UPDATE", &[]).await.map_err(refused)?;
    let (id, owner): (i64, Option<i64>) = (row.get::<_, i64>(0) + 1, row.get(1));
    if let Some(owner) = owner {
        require_ended(client, owner, holder).await?;
    }
    let owner = is_exclusive.then_some(id);
    let begin = "INSERT INTO session VALUES ($1, $2, 0, 0, 0, '{}', now())";
    client.execute(begin, &[&id, &holder]).await.map_err(refused)?;
    client.execute("UPDATE head SET sessions = $1, owner = $2", &[&id, &owner]).await.map_err(refused)?;
    if is_exclusive {
        remove_leftovers(client, id).await.map_err(refused)?;
    }
    Ok(SessionId(id))
}

/// Fails while the session with exclusive access may be alive.
async fn require_ended(client: &Client, owner: i64, holder: &str) -> Result<(), OpenError> {
    let seen = "SELECT holder, extract(epoch FROM now() - used_at)::int8 FROM session WHERE id = $1";
    let Some(row) = client.query_opt(seen, &[&owner]).await.map_err(refused)? else { return Ok(()) };
    let (other, seconds): (String, i64) = (row.get(0), row.get(1));
    if other == holder || seconds >= LEASE_S {
        return Ok(());
    }
    Err(OpenError::InUse { holder: other, seconds, timeout_s: LEASE_S })
}

/// Removes what ended sessions have left: their rows, and runs that they did not add.
async fn remove_leftovers(client: &Client, id: i64) -> Result<(), tokio_postgres::Error> {
    client.execute("DELETE FROM session WHERE id <> $1", &[&id]).await?;
    client.execute("DELETE FROM run_record", &[]).await?;
    let pages = "DELETE FROM run_page WHERE version NOT IN (SELECT run_version FROM log WHERE run_version IS NOT NULL)";
    client.execute(pages, &[]).await?;
    Ok(())
}

/// Resumes a session on a new connection: fences the transactions of its earlier connections, and returns the outcome of its last group.
pub(crate) async fn resume(connection: &Connection, id: SessionId) -> Result<SessionState, Failure> {
    let rows = connection.run_locked(&connection.statements.resume, &[&id.0]).await?;
    let row = rows.first().ok_or_else(|| Failure::Refused(ended()))?;
    Ok(SessionState {
        generation: column(row, 0)?,
        last_group: column(row, 1)?,
        outcome: Outcome { base: seqno(column(row, 2)?), failed: column(row, 3)? },
        head: seqno(column(row, 4)?),
    })
}

/// Shows that a session is alive.
pub(crate) async fn show_alive(connection: &Connection, id: SessionId) -> Result<(), Failure> {
    connection.client.execute(&connection.statements.show_alive, &[&id.0]).await?;
    Ok(())
}

/// Ends a session. Another process can then open the volume at once.
pub(crate) async fn end(connection: &Connection, id: SessionId) -> Result<(), Failure> {
    connection.run_locked(&connection.statements.end_session, &[&id.0]).await?;
    Ok(())
}

/// Returns the outcome of a group from the first columns of its statement's row: the head before the group, which is null if the session may
/// not commit, and the failed commits.
pub(crate) fn outcome(row: &Row) -> Result<Outcome, Failure> {
    let base: Option<i64> = column(row, 0)?;
    let base = base.ok_or_else(|| Failure::Refused(ended()))?;
    Ok(Outcome { base: seqno(base), failed: column(row, 1)? })
}

fn ended() -> EngineError {
    EngineError::Unavailable(
        "another process has taken the volume over, or its tables were replaced: unmount it and mount it again".into(),
    )
}

fn refused(error: tokio_postgres::Error) -> EngineError {
    Failure::from(error).into_engine_error()
}
