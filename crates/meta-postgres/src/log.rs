//! The op log in the table `log`: reads of its ops, and of the keys that other sessions changed.

use crate::columns::{column, seqno};
use crate::connection::Connection;
use crate::failure::failure;
use crate::parameters::as_stored;
use meta::{EngineError, LoggedRun, Seqno};
use meta_remote::{Changes, Failure, LogPage, LogSize, LogState, Position, SessionId};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Maximum commits, and pages of a run, to read at a time.
const COMMITS_MAX: i64 = 4096;
const PAGES_MAX: i64 = 64;

/// The number of columns at the beginning of a row that have the state of the log.
const STATE_COLUMNS: usize = 7;

/// Returns the state of the log in the first columns of a row.
fn state(row: &Row) -> Result<LogState, Failure> {
    Ok(LogState {
        head: seqno(column(row, 0)?),
        cut: seqno(column(row, 1)?),
        size: LogSize { ops: column(row, 2)?, bytes: column(row, 3)?, run_bytes: column(row, 4)? },
        first: column::<Option<i64>>(row, 5)?.map(seqno),
        needed_after: column::<Option<i64>>(row, 6)?.map(seqno),
    })
}

/// Returns the state of the log, and the cursor of a consumer; `None` if it is not registered.
pub(crate) async fn cursor(
    connection: &Connection,
    consumer: &str,
) -> Result<(LogState, Option<Seqno>), Failure> {
    let row =
        connection.client.query_one(&connection.statements.cursor, &[&consumer]).await.map_err(failure)?;
    Ok((state(&row)?, column::<Option<i64>>(&row, STATE_COLUMNS)?.map(seqno)))
}

/// Returns the state of the log, and ops after a cursor: whole commits and pages of runs, until they have `limit` ops or more.
pub(crate) async fn read_after(
    connection: &Connection,
    cursor: Seqno,
    limit: usize,
) -> Result<(LogState, LogPage), Failure> {
    let after = as_stored(cursor);
    let commits = i64::try_from(limit).unwrap_or(i64::MAX).clamp(1, COMMITS_MAX);
    let rows = connection
        .client
        .query(&connection.statements.log_after, &[&after, &commits])
        .await
        .map_err(failure)?;
    let first = rows.first().ok_or_else(|| corrupt("the head is missing"))?;
    let log_state = state(first)?;
    let mut page = LogPage::new(limit);
    for row in &rows {
        let Some(seqno_of_row) = column::<Option<i64>>(row, STATE_COLUMNS)? else { break };
        let commit = seqno(seqno_of_row);
        if page.is_full() {
            break;
        }
        match logged_run(row)? {
            None => page.add(commit, column(row, STATE_COLUMNS + 2)?)?,
            Some(run) => add_run(connection, &mut page, &run, cursor, commit).await?,
        }
    }
    Ok((log_state, page))
}

/// Returns the run that a row of the log describes; `None` if the row has the ops of a commit.
fn logged_run(row: &Row) -> Result<Option<LoggedRun>, Failure> {
    let Some(version) = column::<Option<i64>>(row, STATE_COLUMNS + 3)? else { return Ok(None) };
    let number = |stored: i64| u64::try_from(stored).unwrap_or_default();
    Ok(Some(LoggedRun {
        version: seqno(version),
        pages: column::<i32>(row, STATE_COLUMNS + 4)?.unsigned_abs(),
        ops: number(column(row, STATE_COLUMNS + 1)?),
        bytes: number(column(row, STATE_COLUMNS + 5)?),
    }))
}

/// Adds the pages of a run's ops that come after the cursor, as far as there is room.
async fn add_run(
    connection: &Connection,
    page: &mut LogPage,
    run: &LoggedRun,
    cursor: Seqno,
    commit: Seqno,
) -> Result<(), Failure> {
    let mut next = i32::try_from(run.first_page_after(cursor, commit)).unwrap_or(i32::MAX);
    let version = as_stored(run.version);
    while !page.is_full() && next.unsigned_abs() < run.pages {
        let pages = &connection.statements.run_pages;
        let rows = connection.client.query(pages, &[&version, &next, &PAGES_MAX]).await.map_err(failure)?;
        if rows.is_empty() {
            return Err(corrupt("ops of a run are missing in the log"));
        }
        for row in &rows {
            if page.is_full() {
                break;
            }
            let number: i32 = column(row, 0)?;
            page.add(run.seqno_of_page(commit, number.unsigned_abs()), column(row, 1)?)?;
            next = number + 1;
        }
    }
    Ok(())
}

fn corrupt(what: &str) -> Failure {
    Failure::Refused(EngineError::Corrupt(what.into()))
}

/// Returns up to `limit` commits of other sessions than `session` after a commit.
pub(crate) async fn changes_after(
    connection: &Connection,
    after: Seqno,
    session: SessionId,
    limit: i64,
) -> Result<Changes, Failure> {
    let statement = &connection.statements.changed_after;
    let parameters: [&(dyn ToSql + Sync); 3] = [&as_stored(after), &limit, &session.0];
    let rows = connection.client.query(statement, &parameters).await.map_err(failure)?;
    let first = rows.first().ok_or_else(|| corrupt("the head is missing"))?;
    let (head, cut) = (seqno(column(first, 0)?), seqno(column(first, 1)?));
    let mut commits = Vec::new();
    for row in &rows {
        let Some(at) = column::<Option<i64>>(row, 2)? else { break };
        commits.push((seqno(at), column(row, 3)?));
    }
    let to = match commits.last() {
        Some((last, _)) if commits.len() as i64 >= limit => *last,
        _ => head,
    };
    Ok(Changes { head, cut, commits, to: Position { seqno: to, writer: None }, is_other_history: false })
}
