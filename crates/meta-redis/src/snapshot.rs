//! Snapshots: commits keep the records that they replace while one exists.

use crate::connection::Connection;
use crate::reads::{add_range, of_keys, rows};
use crate::request::Arguments;
use crate::scripts::Script;
use crate::values::Values;
use meta::{DentryWithInode, KeyRange, Rows, Seqno, Versioned};
use meta_remote::{Failure, Reads, ScanRange, SessionId};
use std::fmt;
use tokio::runtime::Handle;

/// The records at one moment. Dropping it lets the server remove the records that it keeps.
pub struct Snapshot {
    connection: Connection,
    id: i64,
    runtime: Handle,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Begins a snapshot of a session, and returns the newest commit that it contains. Must be called on a runtime.
pub(crate) async fn begin(connection: Connection, session: SessionId) -> Result<(Snapshot, Seqno), Failure> {
    let begun = connection.run(Script::BeginSnapshot, Arguments::default().text(session.0)).await?;
    let mut values = Values::of(begun)?;
    let (id, head) = (values.int()?, values.seqno()?);
    Ok((Snapshot { connection, id, runtime: Handle::current() }, head))
}

impl Snapshot {
    /// Returns the arguments that all scripts of the snapshot begin with.
    fn arguments(&self) -> Arguments {
        let mut arguments = Arguments::default();
        arguments.text(self.id);
        arguments
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let (connection, arguments) = (self.connection.clone(), self.arguments());
        self.runtime.spawn(async move {
            // If this fails, the snapshot ends with its session.
            if let Err(failure) = connection.run(Script::EndSnapshot, &arguments).await {
                tracing::debug!("cannot end a snapshot in the database: {failure:?}");
            }
        });
    }
}

impl Reads for Snapshot {
    async fn get(&self, key: &[u8]) -> Result<Option<Versioned>, Failure> {
        Ok(self.multi_get(&[key.to_vec()]).await?.pop().flatten())
    }

    async fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, Failure> {
        let mut arguments = self.arguments();
        arguments.0.extend(keys.iter().cloned());
        of_keys(keys, self.connection.run(Script::SnapshotGet, &arguments).await?)
    }

    async fn get_dentry(&self, key: &[u8]) -> Result<Option<DentryWithInode>, Failure> {
        // The engine reads the inode by itself.
        Ok(self.get(key).await?.map(|dentry| (dentry, None)))
    }

    async fn scan(&self, range: &ScanRange, limit: usize) -> Result<Rows, Failure> {
        let mut arguments = self.arguments();
        add_range(&mut arguments, range, limit);
        rows(self.connection.run(Script::SnapshotScan, &arguments).await?)
    }

    async fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, Failure> {
        let range = ScanRange { from: range.from.clone(), to: Some(range.to.clone()) };
        Ok(self.scan(&range, usize::MAX).await?.pop())
    }
}
