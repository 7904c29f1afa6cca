//! Snapshots: reads in a transaction of a connection of its own, which sees the state at its first statement.
//!
//! While a snapshot exists, the database keeps replaced records and cannot clean its tables up.

use crate::connection::{Connection, Endpoint};
use crate::failure::failure;
use crate::reads;
use meta::{DentryWithInode, KeyRange, Rows, Seqno, Versioned};
use meta_remote::{Failure, Reads, ScanRange};

/// A connection in a transaction that reads. The transaction ends with the connection.
#[derive(Debug)]
pub struct Snapshot(Connection);

/// Connects and begins the transaction. Returns the newest commit that it sees.
pub(crate) async fn begin(endpoint: &Endpoint) -> Result<(Snapshot, Seqno), Failure> {
    let connection = endpoint.connect().await.map_err(|error| Failure::Lost(error.to_string()))?;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    connection.client.batch_execute(begin).await.map_err(failure)?;
    let head = reads::head(&connection).await?;
    Ok((Snapshot(connection), head))
}

impl Reads for Snapshot {
    async fn get(&self, key: &[u8]) -> Result<Option<Versioned>, Failure> {
        reads::get(&self.0, key).await
    }

    async fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, Failure> {
        reads::multi_get(&self.0, keys).await
    }

    async fn get_dentry(&self, key: &[u8]) -> Result<Option<DentryWithInode>, Failure> {
        reads::get_dentry(&self.0, key).await
    }

    async fn scan(&self, range: &ScanRange, limit: usize) -> Result<Rows, Failure> {
        reads::scan(&self.0, range, limit).await
    }

    async fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, Failure> {
        reads::last(&self.0, range).await
    }
}
