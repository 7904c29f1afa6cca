//! [`Postgres`]: a schema of a PostgreSQL database as the [`Database`] of a volume.

use crate::address::Address;
use crate::columns::{column, seqno};
use crate::connection::{Connection, Endpoint};
use crate::failure::failure;
use crate::parameters::as_stored;
use crate::snapshot::{self, Snapshot};
use crate::{lease, log, reads, session, tables, transaction};
use meta::{DentryWithInode, KeyRange, LockChange, LogCap, Rows, Seqno, StoredLocks, Versioned};
use meta_remote::{
    Applied, Changes, Database, Failure, Lease, Listener, LogPage, LogState, OpenError, Position, Reads,
    RunLimits, ScanRange, SessionId, SessionState, StagedRecords, Transaction,
};
use std::fmt;

/// A schema of a PostgreSQL database with the metadata of one volume.
pub struct Postgres(Endpoint);

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("schema", &self.0.schema()).finish_non_exhaustive()
    }
}

impl Postgres {
    /// Describes the database of a volume, without connecting. Fails if the file of trusted certificates cannot be used.
    ///
    /// # Panics
    /// Panics if the id of the volume has other characters than lower-case letters and digits.
    pub fn new(address: &Address, password: Option<&str>, volume_id: &str) -> Result<Self, OpenError> {
        Ok(Self(Endpoint::new(address, password, tables::schema_of(volume_id))?))
    }
}

impl Database for Postgres {
    type Connection = Connection;
    type Snapshot = Snapshot;

    const NAME: &'static str = "PostgreSQL";
    const RUN_LIMITS: RunLimits = RunLimits { records: 1 << 20, bytes: 1 << 30 };

    fn place(&self) -> String {
        tables::place(self.0.schema())
    }

    const VERSION: i32 = tables::VERSION;

    async fn stored_version(&self) -> Result<Option<i32>, OpenError> {
        tables::version(&self.0.connect_bare().await?, self.0.schema()).await
    }

    async fn create(&self) -> Result<(), OpenError> {
        tables::create(&self.0.connect_bare().await?, self.0.schema()).await
    }

    async fn remove(&self) -> Result<(), OpenError> {
        tables::drop_all(&self.0.connect_bare().await?, self.0.schema()).await
    }

    async fn connect(&self) -> Result<Connection, OpenError> {
        self.0.connect().await
    }

    async fn begin_session(
        &self,
        holder: &str,
        is_exclusive: bool,
    ) -> Result<(Connection, SessionId), OpenError> {
        let client = self.0.connect_bare().await?;
        tables::migrate(&client, self.0.schema()).await?;
        let connection = self.0.prepare(client).await?;
        let id = session::begin(&connection.client, holder, is_exclusive).await?;
        Ok((self.0.notifying(connection, id, is_exclusive).await, id))
    }

    async fn connect_committing(
        &self,
        session: SessionId,
        is_exclusive: bool,
    ) -> Result<Connection, OpenError> {
        let connection = self.0.connect().await?;
        Ok(self.0.notifying(connection, session, is_exclusive).await)
    }

    async fn connect_listening(
        &self,
        own: SessionId,
        listener: Listener,
    ) -> Result<(Connection, bool), OpenError> {
        self.0.connect_listening(own, listener).await
    }

    async fn snapshot(&self, _session: SessionId) -> Result<(Snapshot, Seqno), Failure> {
        snapshot::begin(&self.0).await
    }
}

impl Reads for Connection {
    async fn get(&self, key: &[u8]) -> Result<Option<Versioned>, Failure> {
        reads::get(self, key).await
    }

    async fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, Failure> {
        reads::multi_get(self, keys).await
    }

    async fn get_dentry(&self, key: &[u8]) -> Result<Option<DentryWithInode>, Failure> {
        reads::get_dentry(self, key).await
    }

    async fn scan(&self, range: &ScanRange, limit: usize) -> Result<Rows, Failure> {
        reads::scan(self, range, limit).await
    }

    async fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, Failure> {
        reads::last(self, range).await
    }
}

impl meta_remote::Connection for Connection {
    fn is_open(&self) -> bool {
        !self.client.is_closed()
    }

    async fn apply(
        &self,
        transaction: &Transaction,
        session: SessionId,
        generation: i64,
        number: i64,
    ) -> Result<Applied, Failure> {
        transaction::apply(self, transaction, session, generation, number).await
    }

    async fn resume(&self, session: SessionId, known_generation: i64) -> Result<SessionState, Failure> {
        session::resume(self, session, known_generation).await
    }

    async fn show_alive(&self, session: SessionId) -> Result<(), Failure> {
        self.client.execute(&self.statements.show_alive, &[&session.0]).await.map_err(failure)?;
        Ok(())
    }

    async fn end_session(&self, session: SessionId) -> Result<(), Failure> {
        self.run_locked(&self.statements.end_session, &[&session.0]).await?;
        Ok(())
    }

    async fn is_alone(&self, session: SessionId) -> Result<bool, Failure> {
        session::is_alone(self, session).await
    }

    async fn begin_lease(&self, lease: &Lease) -> Result<Seqno, Failure> {
        lease::begin(self, lease).await
    }

    async fn renew_lease(
        &self,
        lease: &Lease,
        answered: i64,
        notifies: bool,
    ) -> Result<Option<Vec<Lease>>, Failure> {
        lease::renew(self, lease, answered, notifies).await
    }

    async fn expire_lease(&self, lease: &Lease) -> Result<(), Failure> {
        lease::expire(self, lease).await
    }

    async fn locks_of(&self, ino: u64) -> Result<StoredLocks, Failure> {
        lease::locks_of(self, ino).await
    }

    async fn replace_locks(
        &self,
        lease: &Lease,
        change: LockChange<'_>,
    ) -> Result<Option<(bool, StoredLocks)>, Failure> {
        lease::replace_locks(self, lease, change).await
    }

    async fn changes_after(
        &self,
        after: Position,
        session: SessionId,
        limit: i64,
    ) -> Result<Changes, Failure> {
        log::changes_after(self, after.seqno, session, limit).await
    }

    async fn read_log(&self, cursor: Seqno, limit: usize) -> Result<(LogState, LogPage), Failure> {
        log::read_after(self, cursor, limit).await
    }

    async fn trim(&self, cap: &LogCap, commits_max: i64) -> Result<(), Failure> {
        let stored = |limit: u64| i64::try_from(limit).unwrap_or(i64::MAX);
        let (tail, bytes, run_bytes) =
            (stored(cap.tail_ops as u64), stored(cap.bytes_max), stored(cap.run_bytes_max));
        self.run_locked(&self.statements.trim, &[&tail, &bytes, &run_bytes, &commits_max]).await?;
        Ok(())
    }

    async fn register(&self, consumer: &str, at: Seqno) -> Result<bool, Failure> {
        let rows = self.run_locked(&self.statements.register, &[&consumer, &as_stored(at)]).await?;
        Ok(!rows.is_empty())
    }

    async fn cursor(&self, consumer: &str) -> Result<(LogState, Option<Seqno>), Failure> {
        log::cursor(self, consumer).await
    }

    async fn advance(&self, consumer: &str, to: Seqno) -> Result<bool, Failure> {
        let advance = &self.statements.advance;
        Ok(self.client.execute(advance, &[&consumer, &as_stored(to)]).await.map_err(failure)? > 0)
    }

    async fn forget_consumer(&self, consumer: &str) -> Result<(), Failure> {
        self.client.execute(&self.statements.forget, &[&consumer]).await.map_err(failure)?;
        Ok(())
    }

    async fn reserve(&self) -> Result<Seqno, Failure> {
        let row = self.client.query_one(&self.statements.reserve, &[]).await.map_err(failure)?;
        Ok(seqno(column(&row, 0)?))
    }

    async fn stage_records(&self, version: Seqno, records: &StagedRecords) -> Result<(), Failure> {
        transaction::stage_records(self, version, records).await
    }

    async fn stage_page(&self, version: Seqno, number: u32, page: &[u8]) -> Result<(), Failure> {
        let number = i32::try_from(number).unwrap_or(i32::MAX);
        let stage = &self.statements.stage_page;
        self.client.execute(stage, &[&as_stored(version), &number, &page]).await.map_err(failure)?;
        Ok(())
    }

    async fn drop_run(&self, version: Seqno) -> Result<(), Failure> {
        let version = as_stored(version);
        self.client.execute(&self.statements.drop_run_records, &[&version]).await.map_err(failure)?;
        self.client.execute(&self.statements.drop_run_pages, &[&version]).await.map_err(failure)?;
        Ok(())
    }
}
