//! The op log: its consumers, reads of its ops, and when it is cut off.
//!
//! A log beyond its limits is cut off by the task that commits, and before an answer that depends on the cut. Ops that no consumer needs may
//! be kept a little longer than the limit says, so that not every commit cuts.

use crate::connection::Connection;
use crate::error::Failure;
use crate::reads::{column, seqno};
use meta::codec::decode_log_page;
use meta::{EngineError, LogCap, LogError, LoggedOp, LoggedRun, Seqno};
use tokio_postgres::Row;

/// The ops that no consumer needs may exceed their limit by a fraction: 1/`SLACK`.
const SLACK: usize = 8;

/// Maximum commits, and pages of a run, to read at a time.
const COMMITS_MAX: i64 = 4096;
const PAGES_MAX: i64 = 64;

/// The size of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LogSize {
    pub(crate) ops: i64,
    pub(crate) bytes: i64,
    pub(crate) run_bytes: i64,
}

impl LogSize {
    /// Returns whether the log is to be cut off, unless consumers need all of it.
    pub(crate) fn exceeds(&self, cap: &LogCap) -> bool {
        exceeds(self.ops, (cap.tail_ops + cap.tail_ops / SLACK) as u64) || self.exceeds_maximum(cap)
    }

    /// Returns whether the log is to be cut off even if consumers need it.
    fn exceeds_maximum(&self, cap: &LogCap) -> bool {
        exceeds(self.bytes, cap.bytes_max) || exceeds(self.run_bytes, cap.run_bytes_max)
    }
}

fn exceeds(size: i64, limit: u64) -> bool {
    u64::try_from(size).is_ok_and(|size| size > limit)
}

/// The state of the log at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogState {
    pub(crate) head: Seqno,
    pub(crate) cut: Seqno,
    size: LogSize,
    /// The first commit in the log.
    first: Option<Seqno>,
    /// The lowest cursor of the consumers that have not lagged.
    needed_after: Option<Seqno>,
}

/// The number of columns of a state in a row.
const STATE_COLUMNS: usize = 7;

impl LogState {
    fn of(row: &Row) -> Result<Self, Failure> {
        Ok(Self {
            head: seqno(column(row, 0)?),
            cut: seqno(column(row, 1)?),
            size: LogSize { ops: column(row, 2)?, bytes: column(row, 3)?, run_bytes: column(row, 4)? },
            first: column::<Option<i64>>(row, 5)?.map(seqno),
            needed_after: column::<Option<i64>>(row, 6)?.map(seqno),
        })
    }

    /// Returns whether commits of the log must be cut off.
    pub(crate) fn is_trim_due(&self, cap: &LogCap) -> bool {
        let Some(first) = self.first else { return false };
        let is_needed = self.needed_after.is_some_and(|cursor| cursor < first);
        self.size.exceeds_maximum(cap) || !is_needed && self.size.exceeds(cap)
    }

    /// Checks that the log reaches back to the cursor.
    pub(crate) fn reaches(&self, cursor: Seqno) -> Result<(), LogError> {
        if cursor < self.cut { Err(LogError::Lagged { head: self.head }) } else { Ok(()) }
    }
}

/// Returns the cursor of a consumer, if there is one.
pub(crate) async fn cursor(
    connection: &Connection,
    consumer: &str,
) -> Result<(LogState, Option<Seqno>), Failure> {
    let row = connection.client.query_one(&connection.statements.cursor, &[&consumer]).await?;
    Ok((LogState::of(&row)?, column::<Option<i64>>(&row, STATE_COLUMNS)?.map(seqno)))
}

/// Moves a consumer's cursor forward. Returns whether there is such a consumer.
pub(crate) async fn advance(connection: &Connection, consumer: &str, to: i64) -> Result<bool, Failure> {
    Ok(connection.client.execute(&connection.statements.advance, &[&consumer, &to]).await? > 0)
}

pub(crate) async fn forget_consumer(connection: &Connection, consumer: &str) -> Result<(), Failure> {
    connection.client.execute(&connection.statements.forget, &[&consumer]).await?;
    Ok(())
}

/// Returns about `limit` ops after a cursor, of whole commits and pages of runs.
pub(crate) async fn read_after(
    connection: &Connection,
    cursor: Seqno,
    limit: usize,
) -> Result<(LogState, Vec<LoggedOp>), Failure> {
    let after = crate::group::as_stored(cursor);
    let commits = i64::try_from(limit).unwrap_or(i64::MAX).clamp(1, COMMITS_MAX);
    let rows = connection.client.query(&connection.statements.log_after, &[&after, &commits]).await?;
    let first = rows.first().ok_or_else(|| corrupt("the head is missing"))?;
    let state = LogState::of(first)?;
    let mut page = Page { limit, ops: Vec::new() };
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
    Ok((state, page.ops))
}

/// Returns the run of a row of the log, if a run is its commit.
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

/// Adds pages of a run's ops, as far as there is room.
async fn add_run(
    connection: &Connection,
    page: &mut Page,
    run: &LoggedRun,
    cursor: Seqno,
    commit: Seqno,
) -> Result<(), Failure> {
    let mut next = i32::try_from(run.first_page_after(cursor, commit)).unwrap_or(i32::MAX);
    let version = crate::group::as_stored(run.version);
    while !page.is_full() && next.unsigned_abs() < run.pages {
        let pages = &connection.statements.run_pages;
        let rows = connection.client.query(pages, &[&version, &next, &PAGES_MAX]).await?;
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

/// Ops read from the log, of whole commits.
struct Page {
    limit: usize,
    ops: Vec<LoggedOp>,
}

impl Page {
    fn is_full(&self) -> bool {
        self.ops.len() >= self.limit && !self.ops.is_empty()
    }

    fn add(&mut self, seqno: Seqno, records: &[u8]) -> Result<(), Failure> {
        let records = decode_log_page(records).map_err(|error| Failure::Refused(error.into()))?;
        self.ops.extend(records.into_iter().map(|record| LoggedOp::new(seqno, record)));
        Ok(())
    }
}

fn corrupt(what: &str) -> Failure {
    Failure::Refused(EngineError::Corrupt(what.into()))
}
