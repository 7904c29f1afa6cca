//! Reads of records over a connection, for the engine and for snapshots.

use crate::connection::Connection;
use crate::error::Failure;
use crate::mergeable::Merged;
use meta::{EngineError, KeyRange, Rows, Seqno, Versioned};
use std::collections::HashMap;
use std::ops::Bound;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

pub(crate) async fn get(connection: &Connection, key: &[u8]) -> Result<Option<Versioned>, Failure> {
    let row = connection.client.query_opt(&connection.statements.get, &[&key]).await?;
    row.map(|row| Ok(record(&row)?.1)).transpose()
}

/// Returns the records of several keys, in the order of the keys.
pub(crate) async fn multi_get(
    connection: &Connection,
    keys: &[Vec<u8>],
) -> Result<Vec<Option<Versioned>>, Failure> {
    let rows = connection.client.query(&connection.statements.multi_get, &[&keys]).await?;
    let found = rows.iter().map(record).collect::<Result<HashMap<_, _>, _>>()?;
    Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
}

pub(crate) async fn scan(connection: &Connection, range: &ScanRange, limit: usize) -> Result<Rows, Failure> {
    let (client, statements) = (&connection.client, &connection.statements);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = match &range.to {
        Some(to) => client.query(&statements.scan, &[&range.from, to, &limit]).await?,
        None => client.query(&statements.scan_to_end, &[&range.from, &limit]).await?,
    };
    rows.iter().map(record).collect()
}

pub(crate) async fn last(
    connection: &Connection,
    range: &KeyRange,
) -> Result<Option<(Vec<u8>, Versioned)>, Failure> {
    let row = connection.client.query_opt(&connection.statements.last, &[&range.from, &range.to]).await?;
    row.as_ref().map(record).transpose()
}

/// Returns the newest commit.
pub(crate) async fn head(connection: &Connection) -> Result<Seqno, Failure> {
    let row = connection.client.query_one(&connection.statements.head, &[]).await?;
    Ok(seqno(column(&row, 0)?))
}

/// A range from a key to the key before another one, if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScanRange {
    from: Vec<u8>,
    to: Option<Vec<u8>>,
}

impl ScanRange {
    pub(crate) fn new(from: Bound<&[u8]>, to: Bound<&[u8]>) -> Self {
        let from = match from {
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => successor(key),
            Bound::Unbounded => Vec::new(),
        };
        let to = match to {
            Bound::Included(key) => Some(successor(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
            Bound::Unbounded => None,
        };
        Self { from, to }
    }
}

/// Returns the key that directly follows a key.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// Returns the record of a row, with what was merged into it.
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

/// Returns a column of a row. Its type follows from the statement.
pub(crate) fn column<'r, T: FromSql<'r>>(row: &'r Row, index: usize) -> Result<T, Failure> {
    let unexpected = |error: tokio_postgres::Error| {
        Failure::Refused(EngineError::Corrupt(format!("an unexpected answer of the database: {error}")))
    };
    row.try_get(index).map_err(unexpected)
}

/// Returns a sequence number that the database stores.
pub(crate) fn seqno(stored: i64) -> Seqno {
    Seqno(u64::try_from(stored).unwrap_or_default())
}
