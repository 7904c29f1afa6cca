//! The transactions that change records: a group of commits, or the addition of a run.

use crate::connection::Connection;
use crate::error::Failure;
use crate::group::{Checks, Group, as_stored, number_of};
use crate::session::SessionId;
use meta::{EngineError, LoggedRun, RunRecord};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

/// A statement that decides on commits and applies them.
pub(crate) trait Transaction {
    /// Returns the prepared statement.
    fn statement<'c>(&self, connection: &'c Connection) -> &'c Statement;

    /// Returns the conditions and merges.
    fn checks(&self) -> &Checks;

    /// Returns the parameters after those of the conditions, merges and session.
    fn writes(&self) -> Vec<&(dyn ToSql + Sync)>;
}

/// Sends a transaction and returns the row of its answer.
pub(crate) async fn send(
    connection: &Connection,
    transaction: &impl Transaction,
    session: SessionId,
    generation: i64,
    number: i64,
) -> Result<Row, Failure> {
    let checks = transaction.checks();
    let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![
        &checks.keys.nr,
        &checks.keys.key,
        &checks.keys.kind,
        &checks.keys.version,
        &checks.ranges.nr,
        &checks.ranges.from,
        &checks.ranges.to,
        &checks.own.nr,
        &checks.own.key,
        &checks.merges.nr,
        &checks.merges.key,
        &checks.merges.sum1,
        &checks.merges.sum2,
        &checks.merges.max1,
        &checks.merges.max2,
        &session.0,
        &generation,
        &number,
    ];
    parameters.extend(transaction.writes());
    let rows = connection.run_locked(transaction.statement(connection), &parameters).await?;
    let no_row = || Failure::Refused(EngineError::Corrupt("a commit without an answer".into()));
    rows.into_iter().next().ok_or_else(no_row)
}

impl Transaction for Group {
    fn statement<'c>(&self, connection: &'c Connection) -> &'c Statement {
        &connection.statements.commit
    }

    fn checks(&self) -> &Checks {
        &self.checks
    }

    fn writes(&self) -> Vec<&(dyn ToSql + Sync)> {
        let writes = &self.writes;
        vec![
            &writes.put_nr,
            &writes.put_key,
            &writes.put_value,
            &writes.put_sum1,
            &writes.put_sum2,
            &writes.delete_nr,
            &writes.delete_key,
            &writes.log_nr,
            &writes.log_ops,
            &writes.log_page,
            &writes.changing,
        ]
    }
}

/// The addition of a run.
pub(crate) struct RunAddition {
    checks: Checks,
    version: i64,
    number: i32,
    ops: i64,
    bytes: i64,
    pages: i32,
}

impl RunAddition {
    pub(crate) fn new(run: &LoggedRun, record: &RunRecord) -> Result<Self, EngineError> {
        Ok(Self {
            checks: Checks::of_run(run, record)?,
            version: as_stored(run.version),
            number: number_of(run),
            ops: i64::try_from(run.ops).unwrap_or(i64::MAX),
            bytes: i64::try_from(run.bytes).unwrap_or(i64::MAX),
            pages: i32::try_from(run.pages).unwrap_or(i32::MAX),
        })
    }

    /// Returns the number of the commit, relative to the head before it.
    pub(crate) fn number(&self) -> i32 {
        self.number
    }
}

impl Transaction for RunAddition {
    fn statement<'c>(&self, connection: &'c Connection) -> &'c Statement {
        &connection.statements.add_run
    }

    fn checks(&self) -> &Checks {
        &self.checks
    }

    fn writes(&self) -> Vec<&(dyn ToSql + Sync)> {
        vec![&self.version, &self.number, &self.ops, &self.bytes, &self.pages]
    }
}
