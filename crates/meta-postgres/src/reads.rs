//! Reads of records over a connection, for the engine and for snapshots.

use crate::columns::{column, seqno};
use crate::connection::Connection;
use crate::failure::failure;
use meta::{DentryWithInode, KeyRange, Rows, Seqno, Versioned};
use meta_remote::{Failure, Merged, ScanRange};
use std::collections::HashMap;
use tokio_postgres::Row;

/// Returns the record of a key; `None` if there is none.
pub(crate) async fn get(connection: &Connection, key: &[u8]) -> Result<Option<Versioned>, Failure> {
    let row = connection.client.query_opt(&connection.statements.get, &[&key]).await.map_err(failure)?;
    row.map(|row| Ok(record(&row)?.1)).transpose()
}

/// Returns the records of several keys, in the order of the keys; `None` for a key without a record.
pub(crate) async fn multi_get(
    connection: &Connection,
    keys: &[Vec<u8>],
) -> Result<Vec<Option<Versioned>>, Failure> {
    let rows = connection.client.query(&connection.statements.multi_get, &[&keys]).await.map_err(failure)?;
    let found = rows.iter().map(record).collect::<Result<HashMap<_, _>, _>>()?;
    Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
}

/// Returns the record of a dentry and that of its inode, from one state.
pub(crate) async fn get_dentry(
    connection: &Connection,
    key: &[u8],
) -> Result<Option<DentryWithInode>, Failure> {
    let rows = connection.client.query(&connection.statements.get_dentry, &[&key]).await.map_err(failure)?;
    let (mut dentry, mut inode) = (None, None);
    for row in &rows {
        let (found, record) = record(row)?;
        if found == key { dentry = Some(record) } else { inode = Some(record) }
    }
    Ok(dentry.map(|dentry| (dentry, inode)))
}

/// Returns the first `limit` records of a range, ascending.
pub(crate) async fn scan(connection: &Connection, range: &ScanRange, limit: usize) -> Result<Rows, Failure> {
    let (client, statements) = (&connection.client, &connection.statements);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = match &range.to {
        Some(to) => client.query(&statements.scan, &[&range.from, to, &limit]).await.map_err(failure)?,
        None => client.query(&statements.scan_to_end, &[&range.from, &limit]).await.map_err(failure)?,
    };
    rows.iter().map(record).collect()
}

/// Returns the last record of a range; `None` if the range is empty.
pub(crate) async fn last(
    connection: &Connection,
    range: &KeyRange,
) -> Result<Option<(Vec<u8>, Versioned)>, Failure> {
    let row = connection
        .client
        .query_opt(&connection.statements.last, &[&range.from, &range.to])
        .await
        .map_err(failure)?;
    row.as_ref().map(record).transpose()
}

/// Returns the newest commit.
pub(crate) async fn head(connection: &Connection) -> Result<Seqno, Failure> {
    let row = connection.client.query_one(&connection.statements.head, &[]).await.map_err(failure)?;
    Ok(seqno(column(&row, 0)?))
}

/// Returns the key and the record of a row, with what was merged into the record.
fn record(row: &Row) -> Result<(Vec<u8>, Versioned), Failure> {
    let (key, value): (Vec<u8>, &[u8]) = (column(row, 0)?, column(row, 1)?);
    let version = seqno(column(row, 2)?);
    let value = match (column(row, 3)?, column::<Option<i64>>(row, 4)?, column(row, 5)?, column(row, 6)?) {
        (Some(sum1), sum2, Some(max1), Some(max2)) => {
            let merged = Merged { sum1, sum2: sum2.unwrap_or_default(), max1, max2 };
            merged.put_into(&key, value).map_err(Failure::Refused)?
        }
        _ => value.into(),
    };
    Ok((key, Versioned { value, version }))
}
