//! Sessions in the table `session`, by whose rows the outcome of a lost answer is found, and exclusive access to a volume.
//!
//! Invariant: at most one transaction of a session can commit after its row was read at its current generation.

use crate::columns::{column, seqno};
use crate::connection::Connection;
use crate::failure::failure;
use meta::EngineError;
use meta_remote::{Failure, LEASE_S, OpenError, Outcome, SILENCE_S_MAX, SessionId, SessionState, ended};
use tokio_postgres::{Client, Row};

/// Begins a session. `holder` describes this process; its earlier sessions end at once. Fails with [`OpenError::InUse`] while a session that
/// excludes this one may be alive.
pub(crate) async fn begin(client: &Client, holder: &str, is_exclusive: bool) -> Result<SessionId, OpenError> {
    client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED").await.map_err(refused)?;
    let begun = begin_locked(client, holder, is_exclusive).await;
    let end = if begun.is_ok() { "COMMIT" } else { "ROLLBACK" };
    client.batch_execute(end).await.map_err(refused)?;
    begun
}

/// Does the work of [`begin`] in its transaction, which locks the head.
async fn begin_locked(client: &Client, holder: &str, is_exclusive: bool) -> Result<SessionId, OpenError> {
    let row = client.query_one("SELECT sessions, owner FROM head FOR UPDATE", &[]).await.map_err(refused)?;
    let (id, owner): (i64, Option<i64>) = (row.get::<_, i64>(0) + 1, row.get(1));
    let others = match (is_exclusive, owner) {
        (true, _) => "id > 0",
        (false, Some(_)) => "id = (SELECT owner FROM head)",
        (false, None) => "false",
    };
    require_ended(client, others, holder).await?;
    let ended = "DELETE FROM session WHERE $2 OR holder = $1 OR used_at < now() - $3::int8 * interval '1 s' OR id = (SELECT owner FROM head)";
    client.execute(ended, &[&holder, &is_exclusive, &SILENCE_S_MAX]).await.map_err(refused)?;
    let owner = is_exclusive.then_some(id);
    let begin = "INSERT INTO session VALUES ($1, $2, 0, 0, 0, '{}', now())";
    client.execute(begin, &[&id, &holder]).await.map_err(refused)?;
    client.execute("UPDATE head SET sessions = $1, owner = $2", &[&id, &owner]).await.map_err(refused)?;
    let void = "DELETE FROM lease WHERE session NOT IN (SELECT id FROM session)";
    client.execute(void, &[]).await.map_err(refused)?;
    remove_leftovers(client).await.map_err(refused)?;
    Ok(SessionId(id))
}

/// Fails with [`OpenError::InUse`] while one of the sessions that a condition selects may be alive, unless it is an earlier one of the same holder.
async fn require_ended(client: &Client, condition: &str, holder: &str) -> Result<(), OpenError> {
    let seen = format!(
        "SELECT holder, extract(epoch FROM now() - used_at)::int8 AS seconds FROM session
        WHERE {condition} AND holder <> $1 ORDER BY used_at DESC LIMIT 1"
    );
    let Some(row) = client.query_opt(&seen, &[&holder]).await.map_err(refused)? else { return Ok(()) };
    let (other, seconds): (String, i64) = (row.get(0), row.get(1));
    if seconds >= LEASE_S {
        return Ok(());
    }
    Err(OpenError::InUse { holder: other, seconds, timeout_s: LEASE_S })
}

/// Removes runs and locks that ended sessions have left, if this session is the only one.
async fn remove_leftovers(client: &Client) -> Result<(), tokio_postgres::Error> {
    let sessions: i64 = client.query_one("SELECT count(*) FROM session", &[]).await?.get(0);
    if sessions > 1 {
        return Ok(());
    }
    client.execute("DELETE FROM lock", &[]).await?;
    client.execute("DELETE FROM run_record", &[]).await?;
    let pages = "DELETE FROM run_page WHERE version NOT IN (SELECT run_version FROM log WHERE run_version IS NOT NULL)";
    client.execute(pages, &[]).await?;
    Ok(())
}

/// Returns whether no other session has shown a sign of life within [`SILENCE_S_MAX`] seconds.
pub(crate) async fn is_alone(connection: &Connection, id: SessionId) -> Result<bool, Failure> {
    let others = &connection.statements.others_alive;
    let row = connection.client.query_one(others, &[&id.0, &SILENCE_S_MAX]).await.map_err(failure)?;
    Ok(column::<i64>(&row, 0)? == 0)
}

/// Resumes a session on a new connection: fences the transactions of its earlier connections, and returns its row. Fails for good if
/// another process has removed the row.
pub(crate) async fn resume(
    connection: &Connection,
    id: SessionId,
    known_generation: i64,
) -> Result<SessionState, Failure> {
    let rows = connection.run_locked(&connection.statements.resume, &[&id.0, &known_generation]).await?;
    let row = rows.first().ok_or_else(|| Failure::Refused(ended()))?;
    Ok(SessionState {
        generation: column(row, 0)?,
        last_group: column(row, 1)?,
        outcome: Outcome { base: seqno(column(row, 2)?), failed: column(row, 3)? },
        head: seqno(column(row, 4)?),
    })
}

/// Returns the outcome of a group from the first columns of its statement's row: the head before the group, which is null if the session may
/// not commit, and the failed commits.
pub(crate) fn outcome(row: &Row) -> Result<Outcome, Failure> {
    let base: Option<i64> = column(row, 0)?;
    let base = base.ok_or_else(|| Failure::Refused(ended()))?;
    Ok(Outcome { base: seqno(base), failed: column(row, 1)? })
}

fn refused(error: tokio_postgres::Error) -> EngineError {
    failure(error).into_engine_error()
}
