//! Columns of the rows of an answer.

use meta::{EngineError, Seqno};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use meta_remote::Failure;

/// Returns a column of a row. The statement determines its type; another type is reported as corrupt.
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
