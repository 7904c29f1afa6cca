//! [`RemoteEngine`]: making and opening, and the implementation of [`Engine`].

use crate::commit_task::CommitTask;
use crate::committer::Committer;
use crate::database::{Connection as _, Database, Reads as _, ScanRange};
use crate::error::OpenError;
use crate::follower::Follower;
use crate::lease_task::LeaseHolder;
use crate::link::Link;
use crate::log::LogState;
use crate::run::NewRun;
use crate::session::SessionId;
use crate::snapshot::Snapshot;
use crate::tasks::{TaskRunner, Tasks, WaitReason};
use meta::codec::decode_dentry;
use meta::{
    Commit, CommitError, DentryWithInode, Engine, EngineError, KeyRange, LockChange, Locker, LogCap,
    LogError, LoggedOp, News, Reader, Rows, RunBuilder, Seqno, StoredLocks, Versioned, schema,
};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// Time for which a call waits while the database cannot be reached, by default.
const BUDGET: Duration = Duration::from_secs(30);

/// Size of the cache of records, by default.
const CACHE_BYTES: usize = 64 << 20;

/// Settings of an engine. They are not part of the format and may differ at each opening.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Limits of the op log.
    pub log_cap: LogCap,
    /// Time for which a call waits while the database cannot be reached. Then it fails.
    pub budget: Duration,
    /// Description of this process, for others that want to open the volume. A session ends earlier ones of the same holder.
    pub holder: String,
    /// Whether no other session may commit while this one is alive. Opening then fails while another session may be alive, and ends all
    /// others.
    pub is_exclusive: bool,
    /// Whether commits of other sessions wait until this one has applied them to its caches. Without effect for an exclusive session.
    pub is_strict: bool,
    /// Maximum bytes of the cache of records.
    pub cache_bytes: usize,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        let (log_cap, holder) = (LogCap::default(), String::new());
        Self {
            log_cap,
            budget: BUDGET,
            holder,
            is_exclusive: true,
            is_strict: false,
            cache_bytes: CACHE_BYTES,
        }
    }
}

/// An [`Engine`] in a database.
pub struct RemoteEngine<D: Database> {
    committer: Committer<D>,
    link: Arc<Link<D>>,
    log_cap: LogCap,
    session: SessionId,
    /// The lease and the tasks of a session that shares the database with other sessions.
    following: Option<Following<D>>,
}

impl<D: Database> RemoteEngine<D> {
    /// Makes the tables or keys of a new volume. Fails if there are some already.
    pub fn create(database: D) -> Result<(), OpenError> {
        let link = Link::start(database, BUDGET, 0)?;
        let making = link.clone();
        link.wait_for(async move { making.database().create().await })?
    }

    /// Returns the version of a volume's tables or keys; `None` if there are none. Changes nothing, and may be called while the volume is in use.
    pub fn stored_version(database: D) -> Result<Option<i32>, OpenError> {
        let link = Link::start(database, BUDGET, 0)?;
        let asking = link.clone();
        link.wait_for(async move { asking.database().stored_version().await })?
    }

    /// Removes the tables or keys of a volume, if there are any.
    pub fn remove(database: D) -> Result<(), OpenError> {
        let link = Link::start(database, BUDGET, 0)?;
        let removing = link.clone();
        link.wait_for(async move { removing.database().remove().await })?
    }

    /// Opens the metadata of a volume. Migrates tables of an earlier version. Fails with [`OpenError::InUse`] while a session that
    /// excludes this one may be alive.
    pub fn open(database: D, options: RemoteOptions) -> Result<Self, OpenError> {
        Self::open_on(Tasks::start_thread().map_err(OpenError::Thread)?, database, options)
    }

    /// Like [`Self::open`], in a simulation that runs the tasks of the engine.
    pub fn open_simulated(
        database: D,
        options: RemoteOptions,
        runner: Arc<dyn TaskRunner>,
    ) -> Result<Self, OpenError> {
        Self::open_on(Tasks::Simulated(runner), database, options)
    }

    fn open_on(tasks: Tasks, database: D, options: RemoteOptions) -> Result<Self, OpenError> {
        let link = Link::start_on(tasks, database, options.budget, options.cache_bytes);
        let (opening, log_cap) = (link.clone(), options.log_cap);
        let (is_exclusive, is_strict) = (options.is_exclusive, options.is_strict);
        let task = link.wait_for(async move { begin_task(opening, options).await })??;
        let session = task.session();
        let following = match is_exclusive {
            true => None,
            false => Some(follow(&link, session, is_strict)?),
        };
        Ok(Self { committer: Committer::start(&link, task), link, log_cap, session, following })
    }

    /// Returns the number of round trips to the database since the engine was opened, without those of connecting and of following other
    /// sessions.
    pub fn round_trips(&self) -> u64 {
        self.link.round_trips()
    }

    /// Calls `ask`, which reads the state of the log. While the log exceeds its limits, cuts its oldest commits off and calls it again.
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

/// The lease of a session that shares a volume, and the tasks that renew it and follow other sessions. They end with this value.
struct Following<D: Database> {
    lease: Arc<LeaseHolder<D>>,
    _tasks: [oneshot::Sender<()>; 2],
}

/// Begins the lease of a session, and starts to follow other sessions.
fn follow<D: Database>(
    link: &Arc<Link<D>>,
    session: SessionId,
    is_strict: bool,
) -> Result<Following<D>, OpenError> {
    let began_at = Instant::now();
    let beginning = LeaseHolder::begin(link.clone(), session, is_strict);
    let lease = link.wait_for(beginning)??;
    // The cache is empty, so it knows all commits so far.
    link.note_followed(began_at);
    let follower = Follower::new(link.clone(), session, link.head());
    let ((end, ended), (end_lease, lease_ended)) = (oneshot::channel(), oneshot::channel());
    link.spawn(follower.run(ended));
    link.spawn(lease.clone().run(lease_ended));
    Ok(Following { lease, _tasks: [end, end_lease] })
}

/// Opens the session of an engine, and the connection on which it commits.
async fn begin_task<D: Database>(
    link: Arc<Link<D>>,
    options: RemoteOptions,
) -> Result<CommitTask<D>, OpenError> {
    let begun = link.database().begin_session(&options.holder, options.is_exclusive).await;
    let (connection, id) = begun?;
    let state = connection.resume(id, 0).await.map_err(|failure| failure.into_engine_error())?;
    Ok(CommitTask::new(link, options.log_cap, id, options.is_exclusive, state, connection))
}

impl<D: Database> fmt::Debug for RemoteEngine<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteEngine")
            .field("place", &self.link.database().place())
            .field("head", &self.link.head())
            .finish_non_exhaustive()
    }
}

impl<D: Database> Reader for RemoteEngine<D> {
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        match self.link.cached(key) {
            Some(found) => Ok(found),
            None => self.get_newest(key),
        }
    }

    fn get_newest(&self, key: &[u8]) -> Result<Option<Versioned>, EngineError> {
        let (known, asked): (_, Arc<[u8]>) = (self.link.mark(), key.into());
        let found = self.link.call(move |connection| {
            let key = asked.clone();
            async move { connection.get(&key).await }
        })?;
        self.link.rows().fill(known, key, found.as_ref());
        Ok(found)
    }

    fn multi_get(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Versioned>>, EngineError> {
        let mut found: Vec<_> = keys.iter().map(|key| self.link.cached(key)).collect();
        let unknown = keys.iter().zip(&found).filter(|(_, found)| found.is_none());
        let unknown: Arc<[Vec<u8>]> = unknown.map(|(key, _)| key.clone()).collect();
        if !unknown.is_empty() {
            let (known, asked) = (self.link.mark(), unknown.clone());
            let read = self.link.call(move |connection| {
                let keys = asked.clone();
                async move { connection.multi_get(&keys).await }
            })?;
            unknown.iter().zip(&read).for_each(|(key, row)| self.link.rows().fill(known, key, row.as_ref()));
            let missing = found.iter_mut().filter(|found| found.is_none());
            missing.zip(read).for_each(|(slot, row)| *slot = Some(row));
        }
        Ok(found.into_iter().map(Option::flatten).collect())
    }

    fn get_dentry(&self, key: &[u8]) -> Result<Option<DentryWithInode>, EngineError> {
        if let Some(found) = self.link.cached(key) {
            let Some(found) = found else { return Ok(None) };
            let inode = self.get(&inode_of(&found)?)?;
            return Ok(Some((found, inode)));
        }
        let (known, asked): (_, Arc<[u8]>) = (self.link.mark(), key.into());
        let found = self.link.call(move |connection| {
            let key = asked.clone();
            async move { connection.get_dentry(&key).await }
        })?;
        let rows = self.link.rows();
        rows.fill(known, key, found.as_ref().map(|(dentry, _)| dentry));
        match found {
            Some((dentry, Some(inode))) => {
                rows.fill(known, &inode_of(&dentry)?, Some(&inode));
                Ok(Some((dentry, Some(inode))))
            }
            // The database did not find the inode by way of the dentry.
            Some((dentry, None)) => {
                let inode = self.get(&inode_of(&dentry)?)?;
                Ok(Some((dentry, inode)))
            }
            None => Ok(None),
        }
    }

    fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: usize) -> Result<Rows, EngineError> {
        let (known, range) = (self.link.mark(), Arc::new(ScanRange::new(from, to)));
        let rows = self.link.call(move |connection| {
            let range = range.clone();
            async move { connection.scan(&range, limit).await }
        })?;
        rows.iter().for_each(|(key, found)| self.link.rows().fill(known, key, Some(found)));
        Ok(rows)
    }

    fn last(&self, range: &KeyRange) -> Result<Option<(Vec<u8>, Versioned)>, EngineError> {
        let range = Arc::new(range.clone());
        self.link.call(move |connection| {
            let range = range.clone();
            async move { connection.last(&range).await }
        })
    }
}

/// Returns the key of the inode of a dentry.
fn inode_of(dentry: &Versioned) -> Result<Vec<u8>, EngineError> {
    Ok(schema::inode(decode_dentry(&dentry.value)?.ino))
}

impl<D: Database> Engine for RemoteEngine<D> {
    fn snapshot(&self) -> Result<Arc<dyn Reader>, EngineError> {
        Ok(Arc::new(Snapshot::begin(&self.link, self.session)))
    }

    fn snapshot_with_head(&self) -> Result<(Arc<dyn Reader>, Seqno), EngineError> {
        let snapshot = Snapshot::begin(&self.link, self.session);
        let head = snapshot.head()?;
        Ok((Arc::new(snapshot), head))
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn is_shared(&self) -> bool {
        self.following.is_some()
    }

    fn is_alone(&self) -> Result<bool, EngineError> {
        let session = self.session;
        self.link.call(move |connection| async move { connection.is_alone(session).await })
    }

    fn rely_on_commits(&self) -> Result<(), EngineError> {
        self.committer.rely_on_commits()
    }

    fn watch(&self, callback: Box<dyn Fn(News) + Send + Sync>) {
        self.link.watchers().add(callback);
    }

    fn acknowledge(&self, to: Seqno) {
        self.link.leases().acknowledge(to);
    }

    fn wait_acknowledged(&self, to: Seqno) -> Result<(), EngineError> {
        if self.following.is_none() || self.link.leases().acknowledged() >= to {
            return Ok(());
        }
        let link = self.link.clone();
        let acknowledged = async move { timeout(link.budget(), link.leases().wait_acknowledged(to)).await };
        let waited = self.link.wait_because(WaitReason::Acknowledgement, acknowledged)?;
        waited.map_err(|_| EngineError::Unavailable("the log cannot be followed".into()))
    }

    fn check_current(&self) -> Result<(), EngineError> {
        if self.link.leases().is_strict() { self.wait_for_lease() } else { Ok(()) }
    }

    fn wait_for_lease(&self) -> Result<(), EngineError> {
        if self.following.is_none() || self.link.leases().own().is_some() {
            return Ok(());
        }
        let link = self.link.clone();
        let trusted = async move { timeout(link.budget(), link.leases().wait_trusted()).await };
        // A new lease is trusted once this session has applied the changes that it missed.
        let waited = self.link.wait_because(WaitReason::Acknowledgement, trusted)?;
        waited.map_err(|_| EngineError::Unavailable("the lease of this mount has expired".into()))
    }

    fn session(&self) -> Option<i64> {
        self.following.as_ref().map(|_| self.session.0)
    }

    fn locker(&self) -> Option<Locker> {
        self.link.leases().own()
    }

    fn locks_of(&self, ino: u64) -> Result<StoredLocks, EngineError> {
        self.lease()?.locks_of(ino)
    }

    fn replace_locks(&self, change: LockChange<'_>) -> Result<(bool, StoredLocks), EngineError> {
        self.lease()?.replace_locks(change)
    }

    fn commit(&self, commit: Commit) -> Result<Seqno, CommitError> {
        self.committer.commit(commit)
    }

    fn log_after(&self, cursor: Seqno, limit: usize) -> Result<Vec<LoggedOp>, LogError> {
        let ask =
            || self.link.call(move |connection| async move { connection.read_log(cursor, limit).await });
        let (state, page) = self.ask_log(ask)?;
        state.reaches(cursor)?;
        Ok(page.into_ops())
    }

    /// Does nothing: an acknowledged commit is durable.
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
        let (name, to) = (Arc::<str>::from(consumer), to);
        let is_known = self.link.call(move |connection| {
            let name = name.clone();
            async move { connection.advance(&name, to).await }
        })?;
        if is_known { Ok(()) } else { Err(LogError::NoConsumer(consumer.to_owned())) }
    }

    fn forget_consumer(&self, consumer: &str) -> Result<(), LogError> {
        let name = Arc::<str>::from(consumer);
        Ok(self.link.call(move |connection| {
            let name = name.clone();
            async move { connection.forget_consumer(&name).await }
        })?)
    }

    /// Returns the newest commit that this process knows: with an exclusive session, the newest one.
    fn head(&self) -> Seqno {
        self.link.head()
    }

    fn memory_bytes(&self) -> u64 {
        self.link.rows().bytes() as u64
    }
}

impl<D: Database> RemoteEngine<D> {
    fn lease(&self) -> Result<&Arc<LeaseHolder<D>>, EngineError> {
        let none = || EngineError::Unavailable("the engine keeps no locks".into());
        self.following.as_ref().map(|following| &following.lease).ok_or_else(none)
    }

    /// Returns the state of the log, and the cursor of a consumer; `None` if it is not registered.
    fn ask_cursor(&self, consumer: &str) -> Result<(LogState, Option<Seqno>), EngineError> {
        let name = Arc::<str>::from(consumer);
        self.link.call(move |connection| {
            let name = name.clone();
            async move { connection.cursor(&name).await }
        })
    }
}
