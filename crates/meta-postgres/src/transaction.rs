//! The transactions that change records: a group of commits, or the addition of a run.

use crate::columns::{column, seqno};
use crate::connection::Connection;
use crate::failure::failure;
use crate::parameters::{Bytes, Checks, Writes, as_stored};
use crate::{lease, session};
use meta::{EngineError, LoggedRun, RunRecord, Seqno};
use meta_remote::{
    Applied, Failure, Group, LogSize, Merged, MergedRow, SessionId, StagedRecords, Transaction, number_of,
};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

/// Parameters of a statement.
type Parameters<'p> = Vec<&'p (dyn ToSql + Sync)>;

/// The place of a transaction among those of its session.
#[derive(Debug, Clone, Copy)]
struct Turn {
    session: i64,
    generation: i64,
    number: i64,
}

/// Applies a transaction as the group `number` of a session.
pub(crate) async fn apply(
    connection: &Connection,
    transaction: &Transaction,
    session: SessionId,
    generation: i64,
    number: i64,
) -> Result<Applied, Failure> {
    let turn = Turn { session: session.0, generation, number };
    let row = match transaction {
        Transaction::Group(group) => apply_group(connection, group, turn).await?,
        Transaction::Run(run, record) => add_run(connection, run, record, turn).await?,
    };
    let outcome = session::outcome(&row)?;
    let now = match column::<Option<i64>>(&row, 2)? {
        Some(head) => {
            let size =
                LogSize { ops: column(&row, 3)?, bytes: column(&row, 4)?, run_bytes: column(&row, 5)? };
            Some((seqno(head), size))
        }
        None => None,
    };
    Ok(Applied { outcome, now, merged: merged_rows(&row)?, strict: lease::strict(&row, 13)? })
}

async fn apply_group(connection: &Connection, group: &Group, turn: Turn) -> Result<Row, Failure> {
    let checks = Checks::of_group(group).map_err(Failure::Refused)?;
    let writes = Writes::of_group(group);
    let own: Parameters<'_> = vec![
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
        &writes.log_keys,
        &writes.changing,
    ];
    send(connection, &connection.statements.commit, &checks, &turn, own).await
}

async fn add_run(
    connection: &Connection,
    run: &LoggedRun,
    record: &RunRecord,
    turn: Turn,
) -> Result<Row, Failure> {
    let checks = Checks::of_run(run, record).map_err(Failure::Refused)?;
    let (version, number) = (as_stored(run.version), number_of(run));
    let (ops, bytes) =
        (i64::try_from(run.ops).unwrap_or(i64::MAX), i64::try_from(run.bytes).unwrap_or(i64::MAX));
    let pages = i32::try_from(run.pages).unwrap_or(i32::MAX);
    let own: Parameters<'_> = vec![&version, &number, &ops, &bytes, &pages];
    send(connection, &connection.statements.add_run, &checks, &turn, own).await
}

/// Sends a statement with its conditions, merges, session and own parameters, and returns the row of its answer.
async fn send(
    connection: &Connection,
    statement: &Statement,
    checks: &Checks,
    turn: &Turn,
    own: Parameters<'_>,
) -> Result<Row, Failure> {
    let mut parameters: Parameters<'_> = vec![
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
        &turn.session,
        &turn.generation,
        &turn.number,
    ];
    parameters.extend(own);
    let rows = connection.run_locked(statement, &parameters).await?;
    let no_row = || Failure::Refused(EngineError::Corrupt("a commit without an answer".into()));
    rows.into_iter().next().ok_or_else(no_row)
}

/// Returns the records that were merged into, from the row of an answer.
fn merged_rows(row: &Row) -> Result<Vec<MergedRow>, Failure> {
    let keys: Vec<Vec<u8>> = column(row, 6)?;
    let (before, versions): (Vec<i64>, Vec<i64>) = (column(row, 7)?, column(row, 8)?);
    let (sum1, sum2): (Vec<i64>, Vec<Option<i64>>) = (column(row, 9)?, column(row, 10)?);
    let (max1, max2): (Vec<i64>, Vec<i64>) = (column(row, 11)?, column(row, 12)?);
    let columns = sum1.into_iter().zip(sum2).zip(max1.into_iter().zip(max2));
    let rows = keys.into_iter().zip(before.into_iter().zip(versions)).zip(columns);
    let merged = rows.map(|((key, (before, version)), ((sum1, sum2), (max1, max2)))| MergedRow {
        key,
        before: seqno(before),
        version: seqno(version),
        columns: Merged { sum1, sum2: sum2.unwrap_or_default(), max1, max2 },
    });
    Ok(merged.collect())
}

/// Puts records of a run into the table of those that no commit has added yet.
pub(crate) async fn stage_records(
    connection: &Connection,
    version: Seqno,
    records: &StagedRecords,
) -> Result<(), Failure> {
    let values: Vec<Option<Bytes>> = records.values.iter().map(|value| value.clone().map(Bytes)).collect();
    let (sum1, sum2): (Vec<_>, Vec<_>) = records.sums.iter().map(|sums| (sums.sum1, sums.sum2)).unzip();
    let parameters: [&(dyn ToSql + Sync); 5] = [&as_stored(version), &records.keys, &values, &sum1, &sum2];
    let stage = &connection.statements.stage_records;
    connection.client.execute(stage, &parameters).await.map_err(failure)?;
    Ok(())
}
