//! [`PostgresEngine`]: making and opening, and the implementation of [`Engine`].

use crate::address::Address;
use crate::commit_task::CommitTask;
use crate::committer::Committer;
use crate::connection::Endpoint;
use crate::error::OpenError;
use crate::group::as_stored;
use crate::link::Link;
use crate::log::{self, LogState};
use crate::reads::{self, ScanRange};
use crate::run::NewRun;
use crate::snapshot::Snapshot;
use crate::{session, tables};
use meta::{
    Commit, CommitError, Engine, EngineError, KeyRange, LogCap, LogError, LoggedOp, Reader, Rows, RunBuilder,
    Seqno, Versioned,
};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Time for which a call waits while the database cannot be reached, by default.
const BUDGET: Duration = Duration::from_secs(30);

/// Settings of an engine. They are not part of the format and may differ at each opening.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresOptions {
    /// Limits of the op log.
    pub log_cap: LogCap,
    /// Time for which a call waits while the database cannot be reached. Then it fails.
    pub budget: Duration,
    /// Description of this process, for others that want to open the volume. An exclusive session ends earlier ones of the same holder.
    pub holder: String,
    /// Whether no other session may commit while this one is alive.
    pub is_exclusive: bool,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { log_cap: LogCap::default(), budget: BUDGET, holder: String::new(), is_exclusive: true }
    }
}

/// An [`Engine`] in a schema of a PostgreSQL database.
pub struct PostgresEngine {
    committer: Committer,
    link: Arc<Link>,
    log_cap: LogCap,
}

impl PostgresEngine {
    /// Makes the tables of a new volume. The id of the volume consists of lower-case letters and digits. Fails if there are tables already.
    pub fn create(address: &Address, password: Option<&str>, volume_id: &str) -> Result<(), OpenError> {
        let link = Link::start(Endpoint::new(address, password, tables::schema_of(volume_id))?, BUDGET)?;
        let making = link.clone();
        link.wait_for(async move {
            let client = making.endpoint().connect_bare().await?;
            tables::create(&client, making.endpoint().schema()).await
        })?
    }

    /// Removes the tables of a volume, if there are any.
    pub fn remove(address: &Address, password: Option<&str>, volume_id: &str) -> Result<(), OpenError> {
        let link = Link::start(Endpoint::new(address, password, tables::schema_of(volume_id))?, BUDGET)?;
        let removing = link.clone();
        link.wait_for(async move {
            let client = removing.endpoint().connect_bare().await?;
            tables::drop_all(&client, removing.endpoint().schema()).await
        })?
    }

    /// Opens the metadata of a volume. Migrates tables of an earlier version.
    pub fn open(
        address: &Address,
        password: Option<&str>,
        volume_id: &str,
        options: PostgresOptions,
    ) -> Result<Self, OpenError> {
        let link =
            Link::start(Endpoint::new(address, password, tables::schema_of(volume_id))?, options.budget)?;
        let (opening, log_cap) = (link.clone(), options.log_cap);
        let task = link.wait_for(async move { begin_task(opening, options).await })??;
        Ok(Self { committer: Committer::start(&link, task), link, log_cap })
    }

    /// Returns the number of round trips to the database since the engine was opened.
    pub fn round_trips(&self) -> u64 {
        self.link.round_trips()
    }

    /// Asks for the log until nothing of it must be cut off any more.
    fn ask_log<T>(
        &self,
        ask: impl Fn() -> Result<(LogState, T), EngineError>,
    ) -> Result<(LogState, T), EngineError> {
        loop {
            let (state, answer) = ask()?;
            self.link.learn_head(state.head);
            if !state.is_trim_due(&self.log_cap) {
                return Ok((state, answer));
            }
            self.committer.trim()?;
        }
    }
}

/// Opens the session of an engine, and the connection on which it commits.
async fn begin_task(link: Arc<Link>, options: PostgresOptions) -> Result<CommitTask, OpenError> {
    let client = link.endpoint().connect_bare().await?;
    tables::migrate(&client, link.endpoint().schema()).await?;
    drop(client);
    let connection = link.endpoint().connect().await?;
    let id = session::begin(&connection.client, &options.holder, options.is_exclusive).await?;
    let state = session::resume(&connection, id).await.map_err(|failure| failure.into_engine_error())?;
    Ok(CommitTask::new(link, options.log_cap, id, state, connection))
}

impl fmt::Debug for PostgresEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresEngine")
            .field("schema", &self.link.endpoint().schema())
            .field("head", &self.link.head())
            .finish_non_exhaustive()
    }
}

impl Reader for PostgresEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        let key: Arc<[u8]> = key.into();
        self.link.call(move |connection| {
            let key = key.clone();
            async move { reads::get(&connection, &key).await }
        })
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Arc<[Vec<u8>]> = keys.into();
        self.link.call(move |connection| {
            let keys = keys.clone();
            async move { reads::multi_get(&connection, &keys).await }
        })
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        let range = Arc::new(ScanRange::new(from, to));
        self.link.call(move |connection| {
            let range = range.clone();
            async move { reads::scan(&connection, &range, limit).await }
        })
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        let range = Arc::new(range.clone());
        self.link.call(move |connection| {
            let range = range.clone();
            async move { reads::last(&connection, &range).await }
        })
    }
}

impl Engine for PostgresEngine {
    fn snapshot(&self) -> Arc<dyn Reader> {
        Arc::new(Snapshot::begin(&self.link))
    }

    fn snapshot_with_head(&self) -> Result<(Arc<dyn Reader>, Seqno), EngineError> {
        let snapshot = Snapshot::begin(&self.link);
        let head = snapshot.head()?;
        Ok((Arc::new(snapshot), head))
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn commit(&self, commit: Commit) -> Result<Seqno, CommitError> {
        self.committer.commit(commit)
    }

    fn log_after(&self, cursor: Seqno, limit: usize) -> Result<Vec<LoggedOp>, LogError> {
        let ask = || {
            self.link.call(move |connection| async move { log::read_after(&connection, cursor, limit).await })
        };
        let (state, ops) = self.ask_log(ask)?;
        state.reaches(cursor)?;
        Ok(ops)
    }

    /// Does nothing: an answered commit is durable.
    fn sync(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn begin_run(&self) -> Result<Box<dyn RunBuilder<'_> + '_>, EngineError> {
        Ok(Box::new(NewRun::begin(&self.link, &self.committer)?))
    }

    fn register(&self, consumer: &str, at: Seqno) -> Result<(), LogError> {
        let known = self.ask_log(|| self.ask_cursor(consumer))?.0;
        known.reaches(at)?;
        match self.committer.register(consumer, at)? {
            true => Ok(()),
            false => Err(LogError::Lagged { head: self.head() }),
        }
    }

    fn cursor(&self, consumer: &str) -> Result<Seqno, LogError> {
        let (state, cursor) = self.ask_log(|| self.ask_cursor(consumer))?;
        let cursor = cursor.ok_or_else(|| LogError::NoConsumer(consumer.to_owned()))?;
        state.reaches(cursor)?;
        Ok(cursor)
    }

    fn advance(&self, consumer: &str, to: Seqno) -> Result<(), LogError> {
        let (name, to) = (Arc::<str>::from(consumer), as_stored(to));
        let is_known = self.link.call(move |connection| {
            let name = name.clone();
            async move { log::advance(&connection, &name, to).await }
        })?;
        if is_known { Ok(()) } else { Err(LogError::NoConsumer(consumer.to_owned())) }
    }

    fn forget_consumer(&self, consumer: &str) -> Result<(), LogError> {
        let name = Arc::<str>::from(consumer);
        Ok(self.link.call(move |connection| {
            let name = name.clone();
            async move { log::forget_consumer(&connection, &name).await }
        })?)
    }

    /// Returns the newest commit that this process knows: with an exclusive session, the newest one.
    fn head(&self) -> Seqno {
        self.link.head()
    }

    fn memory_bytes(&self) -> u64 {
        0
    }
}

impl PostgresEngine {
    fn ask_cursor(&self, consumer: &str) -> Result<(LogState, Option<Seqno>), EngineError> {
        let name = Arc::<str>::from(consumer);
        self.link.call(move |connection| {
            let name = name.clone();
            async move { log::cursor(&connection, &name).await }
        })
    }
}
