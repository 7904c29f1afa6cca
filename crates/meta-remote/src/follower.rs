//! The follower of other sessions' commits: drops the records that they changed from the cache, and notifies the watchers.
//!
//! It is woken by notifications where the database has them, and otherwise reads the log at an interval. Commits have one
//! order, so a read of the log after a position skips nothing.
//!
//! Invariant: the cache answers only while the log was read to its end a short time ago.

use crate::changed_keys;
use crate::database::{Connection as _, Database, Listener};
use crate::error::{Failure, OpenError};
use crate::lease::{Leases, Notice};
use crate::link::Link;
use crate::session::SessionId;
use meta::{EngineError, Ino, News, Seqno};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

/// Interval at which the log is read without a notification, if the database has notifications. One can be lost with a connection.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which the log is read if the database has no notifications.
const POLL_INTERVAL_WITHOUT_NOTIFICATIONS: Duration = Duration::from_millis(200);

/// Time after which a read of the log has failed.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause before the database is connected again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// Time since the last read of the log to its end for which the cache answers.
pub(crate) const LAG_MAX: Duration = Duration::from_secs(3);

/// Maximum commits to read at a time.
const COMMITS_MAX: i64 = 1024;

type Callback = Box<dyn Fn(News) + Send + Sync>;

/// Callbacks that are notified of other sessions' commits.
#[derive(Default)]
pub(crate) struct Watchers(Mutex<Vec<Callback>>);

impl Watchers {
    /// Adds a callback.
    pub(crate) fn add(&self, callback: Callback) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(callback);
    }

    /// Notifies the watchers of commits of others. Without watchers, acknowledges the commits.
    fn notify_of_commits(&self, leases: &Leases, after: Seqno, to: Seqno) {
        leases.followed(to, true);
        self.notify(News::Commits { after, to });
        self.acknowledge_alone(leases, to);
    }

    /// Like `notify_of_commits`, for anything that may have changed up to a commit.
    pub(crate) fn notify_of_everything(&self, leases: &Leases, to: Seqno) {
        leases.followed(to, true);
        self.notify(News::Everything { to });
        self.acknowledge_alone(leases, to);
    }

    fn acknowledge_alone(&self, leases: &Leases, to: Seqno) {
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            leases.acknowledge(to);
        }
    }

    /// Calls all callbacks.
    pub(crate) fn notify(&self, news: News) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|callback| callback(news));
    }
}

impl fmt::Debug for Watchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchers").finish_non_exhaustive()
    }
}

/// The task that follows the log.
pub(crate) struct Follower<D: Database> {
    link: Arc<Link<D>>,
    session: SessionId,
    /// The last commit that was applied to the cache.
    position: Position,
    /// Number of losses of commits that were handled.
    restarts: u64,
    /// The connection, and whether it is notified of commits.
    connection: Option<(D::Connection, bool)>,
}

impl<D: Database> Follower<D> {
    /// Creates the task of a session that knows the commits up to `position`.
    pub(crate) fn new(link: Arc<Link<D>>, session: SessionId, position: Seqno) -> Self {
        let position = Position { seqno: position, writer: None };
        Self { link, session, position, restarts: 0, connection: None }
    }

    /// Follows until the other end of `ended` is dropped.
    pub(crate) async fn run(mut self, mut ended: oneshot::Receiver<()>) {
        loop {
            tokio::select! {
                biased;
                _ = &mut ended => return,
                () = self.step() => {}
            }
        }
    }

    /// Reads the log to its end and waits for a reason to read it again.
    async fn step(&mut self) {
        let outcome = match self.read_to_end().await {
            Ok(is_notified) => Ok(is_notified),
            Err(failure) => {
                tracing::debug!("the commits of other sessions cannot be read: {failure}");
                self.connection = None;
                Err(())
            }
        };
        match outcome {
            Ok(is_notified) => {
                let interval = if is_notified { POLL_INTERVAL } else { POLL_INTERVAL_WITHOUT_NOTIFICATIONS };
                // The interval has ended, which is as good a reason to read.
                let _ = timeout(interval, self.link.leases().woken.notified()).await;
            }
            Err(()) => sleep(RECONNECT_PAUSE).await,
        }
    }

    /// Reads the log to its end. Returns whether the connection is notified of commits.
    async fn read_to_end(&mut self) -> Result<bool, OpenError> {
        let (connection, is_notified) = match self.connection.take().filter(|(open, _)| open.is_open()) {
            Some(open) => open,
            None => self.link.database().connect_listening(self.session, self.listener()).await?,
        };
        loop {
            self.go_back();
            let began_at = Instant::now();
            let read = connection.changes_after(self.position, self.session, COMMITS_MAX);
            let page = match timeout(READ_TIMEOUT, read).await {
                Ok(page) => page.map_err(Failure::into_engine_error)?,
                Err(_) => {
                    return Err(EngineError::Unavailable("the database did not answer in time".into()).into());
                }
            };
            self.take_in(&page)?;
            if self.position.seqno >= page.head {
                self.link.note_followed(began_at);
                break;
            }
        }
        self.connection = Some((connection, is_notified));
        Ok(is_notified)
    }

    /// Returns the function that takes notifications.
    fn listener(&self) -> Listener {
        let link: Weak<Link<D>> = Arc::downgrade(&self.link);
        Arc::new(move |notice| {
            let Some(link) = link.upgrade() else { return };
            match notice {
                Notice::Commit => link.leases().woken.notify_one(),
                Notice::Acknowledgement { session, to } => link.leases().note_acknowledgement(session, to),
                Notice::Unlocked(ino) => link.watchers().notify(News::Unlocked(Ino(ino))),
            }
        })
    }

    /// Handles a loss of commits that the committing task has noticed.
    fn go_back(&mut self) {
        let (restarts, at) = self.link.rows().restarts();
        if self.restarts != restarts {
            self.restarts = restarts;
            if at < self.position.seqno {
                self.position = Position { seqno: at, writer: None };
            }
        }
    }

    /// Applies a page of commits: drops the records that they changed from the cache, and notifies the watchers.
    fn take_in(&mut self, page: &Changes) -> Result<(), EngineError> {
        if page.is_other_history || page.head < self.position.seqno {
            tracing::warn!(
                "the database has lost commits: its newest is {}, this mount knows {}; all caches are dropped, and changes of files and names since then are lost",
                page.head.0,
                self.position.seqno.0
            );
            self.link.go_back(page.head);
            self.restarts = self.link.rows().restarts().0;
            self.position = page.to;
            return Ok(());
        }
        self.link.learn_head(page.head);
        let (rows, watchers) = (self.link.rows(), self.link.watchers());
        if self.position.seqno < page.cut {
            watchers.notify(News::Coming);
            rows.clear(page.head);
            watchers.notify_of_everything(self.link.leases(), page.to.seqno);
            self.position = page.to;
            return Ok(());
        }
        if !page.commits.is_empty() {
            watchers.notify(News::Coming);
        }
        for (at, keys) in &page.commits {
            match keys {
                Some(keys) => {
                    changed_keys::decode(keys)?.into_iter().for_each(|key| rows.drop_changed(key, *at));
                }
                None => rows.clear(*at),
            }
        }
        if !page.commits.is_empty() {
            watchers.notify_of_commits(self.link.leases(), self.position.seqno, page.to.seqno);
        } else {
            self.link.leases().followed(page.to.seqno, false);
        }
        self.position = page.to;
        Ok(())
    }
}

/// A position in the log: a commit, and the writer of the newest commit up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// The commit.
    pub seqno: Seqno,
    /// The session, its generation and the number of its group; `None` if it is not known. If the database has another writer at this
    /// position, it has lost commits since.
    pub writer: Option<[i64; 3]>,
}

/// A page of commits of other sessions.
#[derive(Debug)]
pub struct Changes {
    /// The newest commit.
    pub head: Seqno,
    /// The newest commit that was cut off from the log.
    pub cut: Seqno,
    /// The commits, each with the keys of the records that it changed, as [`changed_keys`] encodes them. A run has none.
    pub commits: Vec<(Seqno, Option<Vec<u8>>)>,
    /// The end of the page. It is the head if there are no more commits.
    pub to: Position,
    /// Whether the commit at the position of the reader is not the one that it knows.
    pub is_other_history: bool,
}
