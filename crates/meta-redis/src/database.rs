//! [`Redis`]: the keys of a volume in a Redis server as the [`Database`] of the volume.

use crate::address::Address;
use crate::connection::{Connection, Endpoint};
use crate::failure::failure;
use crate::log::{self, pages_key};
use crate::request::{self, Arguments};
use crate::scripts::Script;
use crate::snapshot::{self, Snapshot};
use crate::values::int;
use crate::{lease, record, session};
use meta::{EngineError, LockChange, LogCap, Seqno, StoredLocks};
use meta_remote::{
    Applied, Changes, Database, Failure, Lease, Listener, LogPage, LogState, OpenError, Position, RunLimits,
    SessionId, SessionState, StagedRecords, Transaction,
};

/// The version of the keys and records that this Tenon makes, and the newest that it knows.
const VERSION: i32 = 2;

/// Keys to remove with one command.
const KEYS_PER_REMOVAL: usize = 1000;

/// The keys of a volume in a Redis server.
#[derive(Debug)]
pub struct Redis(Endpoint);

impl Redis {
    /// Describes the database of a volume, without connecting. Fails if the file of trusted certificates cannot be used.
    pub fn new(address: &Address, password: Option<&str>, volume_id: &str) -> Result<Self, OpenError> {
        Ok(Self(Endpoint::new(address, password, format!("tenon:{{{volume_id}}}:"))?))
    }

    /// Logs in at the Sentinels of the address with a password, as the user that the address names for them.
    #[must_use]
    pub fn with_sentinel_password(self, password: Option<&str>) -> Self {
        Self(self.0.with_sentinel_password(password))
    }
}

impl Database for Redis {
    type Connection = Connection;
    type Snapshot = Snapshot;

    const NAME: &'static str = "Redis";
    const RUN_LIMITS: RunLimits = RunLimits { records: 1 << 18, bytes: 256 << 20 };

    fn place(&self) -> String {
        format!("keys '{}*'", self.0.prefix())
    }

    const VERSION: i32 = VERSION;

    async fn stored_version(&self) -> Result<Option<i32>, OpenError> {
        session::stored_version(&self.0.connect().await?).await
    }

    async fn create(&self) -> Result<(), OpenError> {
        let connection = self.0.connect_checked().await?;
        let made = connection.run(Script::Create, Arguments::default().text(VERSION)).await;
        match made.and_then(|made| int(&made)).map_err(Failure::into_engine_error)? {
            1 => Ok(()),
            _ => Err(OpenError::Exists(self.place())),
        }
    }

    async fn remove(&self) -> Result<(), OpenError> {
        let connection = self.0.connect().await?;
        let keys = connection.keys().await.map_err(Failure::into_engine_error)?;
        for keys in keys.chunks(KEYS_PER_REMOVAL) {
            let mut unlink = redis::cmd("UNLINK");
            for key in keys {
                unlink.arg(key.as_slice());
            }
            connection.send(unlink).await.map_err(Failure::into_engine_error)?;
        }
        Ok(())
    }

    async fn connect(&self) -> Result<Connection, OpenError> {
        self.0.connect().await
    }

    async fn begin_session(
        &self,
        holder: &str,
        is_exclusive: bool,
    ) -> Result<(Connection, SessionId), OpenError> {
        let connection = self.0.connect_checked().await?;
        session::check_version(&connection, self.place(), VERSION).await?;
        let id = session::begin(&connection, holder, is_exclusive, VERSION).await?;
        Ok((connection, id))
    }

    async fn connect_committing(
        &self,
        _session: SessionId,
        _is_exclusive: bool,
    ) -> Result<Connection, OpenError> {
        // After a failover this is another server, so its settings are checked again.
        self.0.connect_checked().await
    }

    async fn connect_listening(
        &self,
        own: SessionId,
        listener: Listener,
    ) -> Result<(Connection, bool), OpenError> {
        Ok((self.0.connect_listening(own, listener).await?, true))
    }

    async fn snapshot(&self, session: SessionId) -> Result<(Snapshot, Seqno), Failure> {
        let connection = self.0.connect().await.map_err(|error| Failure::Lost(error.to_string()))?;
        snapshot::begin(connection, session).await
    }
}

impl meta_remote::Connection for Connection {
    fn is_open(&self) -> bool {
        self.is_usable()
    }

    async fn apply(
        &self,
        transaction: &Transaction,
        session: SessionId,
        generation: i64,
        number: i64,
    ) -> Result<Applied, Failure> {
        let (script, arguments) = match transaction {
            Transaction::Group(group) => {
                let script =
                    if request::frees_memory(group) { Script::CommitFreeing } else { Script::Commit };
                (script, request::of_group(group, session, generation, number)?)
            }
            Transaction::Run(run, record) => {
                (Script::AddRun, request::of_run(run, record, session, generation, number)?)
            }
        };
        request::applied(self.run(script, &arguments).await?)
    }

    async fn resume(&self, session: SessionId, known_generation: i64) -> Result<SessionState, Failure> {
        session::resume(self, session, known_generation).await
    }

    async fn show_alive(&self, session: SessionId) -> Result<(), Failure> {
        session::run(self, Script::ShowAlive, session).await
    }

    async fn end_session(&self, session: SessionId) -> Result<(), Failure> {
        session::run(self, Script::EndSession, session).await
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
        log::changes_after(self, after, session, limit).await
    }

    async fn read_log(&self, cursor: Seqno, limit: usize) -> Result<(LogState, LogPage), Failure> {
        log::read_after(self, cursor, limit).await
    }

    async fn trim(&self, cap: &LogCap, commits_max: i64) -> Result<(), Failure> {
        log::trim(self, cap, commits_max).await
    }

    async fn register(&self, consumer: &str, at: Seqno) -> Result<bool, Failure> {
        let mut arguments = Arguments::default();
        arguments.text(consumer).text(at.0);
        Ok(int(&self.run(Script::Register, &arguments).await?)? == 1)
    }

    async fn cursor(&self, consumer: &str) -> Result<(LogState, Option<Seqno>), Failure> {
        log::cursor(self, consumer).await
    }

    async fn advance(&self, consumer: &str, to: Seqno) -> Result<bool, Failure> {
        let mut arguments = Arguments::default();
        arguments.text(consumer).text(to.0);
        Ok(int(&self.run(Script::Advance, &arguments).await?)? == 1)
    }

    async fn forget_consumer(&self, consumer: &str) -> Result<(), Failure> {
        self.call("HDEL", "consumers", &[consumer.as_bytes()]).await.map(drop)
    }

    async fn reserve(&self) -> Result<Seqno, Failure> {
        let head = int(&self.call("HINCRBY", "head", &[b"head", b"1"]).await?)?;
        let head = u64::try_from(head);
        head.map(Seqno).map_err(|_| Failure::Refused(EngineError::Corrupt("the head is negative".into())))
    }

    async fn stage_records(&self, version: Seqno, records: &StagedRecords) -> Result<(), Failure> {
        self.note_run(version).await?;
        let mut command = redis::cmd("HSET");
        command.arg(self.key(&format!("run-records:{}", version.0)));
        for ((key, value), sums) in records.keys.iter().zip(&records.values).zip(&records.sums) {
            // A removal is an empty text.
            let value = value.as_deref().map(|value| record::encode(key, *sums, value));
            command.arg(key.as_slice()).arg(value.unwrap_or_default());
        }
        self.send(command).await.map(drop)
    }

    async fn stage_page(&self, version: Seqno, number: u32, page: &[u8]) -> Result<(), Failure> {
        self.note_run(version).await?;
        self.call("HSET", &pages_key(version), &[number.to_string().as_bytes(), page]).await.map(drop)
    }

    async fn drop_run(&self, version: Seqno) -> Result<(), Failure> {
        let mut unlink = redis::cmd("UNLINK");
        unlink.arg(self.key(&format!("run-records:{}", version.0))).arg(self.key(&pages_key(version)));
        self.ask(unlink).await.map_err(failure)?;
        self.call("SREM", "runs", &[version.0.to_string().as_bytes()]).await.map(drop)
    }
}

impl Connection {
    /// Notes a run that is being staged, so that its keys are removed if it is never added.
    async fn note_run(&self, version: Seqno) -> Result<(), Failure> {
        self.call("SADD", "runs", &[version.0.to_string().as_bytes()]).await.map(drop)
    }
}
