//! The tasks of an engine, its connections for reads, and the wait of callers for both ([`Tasks`]).
//!
//! A call that gets no answer fails when its budget has ended, also while it connects.

use crate::database::{Connection as _, Database};
use crate::error::{Failure, OpenError};
use crate::follower::{LAG_MAX, Watchers};
use crate::lease::Leases;
use crate::row_cache::{Mark, RowCache};
use crate::tasks::{Answer, Outcome, Tasks, WaitReason};
use meta::{EngineError, News, Seqno, Versioned};
use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

/// Number of connections for reads. Reads of several callers share a connection; their statements are sent without waiting for each other.
const READ_CONNECTIONS: usize = 2;

/// Pauses before repeated attempts: the first pause, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The I/O thread of an engine, its connections for reads, and the newest commit that the engine knows.
pub(crate) struct Link<D: Database> {
    tasks: Tasks,
    database: D,
    /// Time after which a call without an answer fails.
    budget: Duration,
    /// The connections for reads, each `None` until it is made.
    readers: [Mutex<Option<Arc<D::Connection>>>; READ_CONNECTIONS],
    /// Number of reads so far, which are spread over the connections.
    next_reader: AtomicUsize,
    /// The newest commit that this process knows.
    head: AtomicU64,
    round_trips: AtomicU64,
    /// The cache of records.
    rows: RowCache,
    watchers: Watchers,
    leases: Leases,
    /// When the log was last read to its end; `None` if there are no other sessions to follow.
    followed_at: std::sync::Mutex<Option<Instant>>,
}

impl<D: Database> Link<D> {
    /// Starts the I/O thread. Does not connect yet. Calls fail after the budget. `cache_bytes` is the size of the cache of records.
    pub(crate) fn start(database: D, budget: Duration, cache_bytes: usize) -> Result<Arc<Self>, OpenError> {
        let tasks = Tasks::start_thread().map_err(OpenError::Thread)?;
        Ok(Self::start_on(tasks, database, budget, cache_bytes))
    }

    /// Like [`Self::start`], with another place for the tasks.
    pub(crate) fn start_on(tasks: Tasks, database: D, budget: Duration, cache_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            tasks,
            database,
            budget,
            readers: Default::default(),
            next_reader: AtomicUsize::new(0),
            head: AtomicU64::new(0),
            round_trips: AtomicU64::new(0),
            rows: RowCache::new(cache_bytes),
            watchers: Watchers::default(),
            leases: Leases::default(),
            followed_at: std::sync::Mutex::new(None),
        })
    }

    pub(crate) fn database(&self) -> &D {
        &self.database
    }

    /// Returns the time after which a call without an answer fails.
    pub(crate) fn budget(&self) -> Duration {
        self.budget
    }

    /// Returns the newest commit that this process knows.
    pub(crate) fn head(&self) -> Seqno {
        Seqno(self.head.load(Ordering::Acquire))
    }

    /// Notes that there is a commit. The newest known one decreases only by [`Self::go_back`].
    pub(crate) fn learn_head(&self, head: Seqno) {
        self.head.fetch_max(head.0, Ordering::AcqRel);
    }

    /// Handles a loss of commits by the database, whose newest commit is now `head`. Nothing that was read before is used any more.
    pub(crate) fn go_back(&self, head: Seqno) {
        self.watchers.notify(News::Coming);
        self.head.store(head.0, Ordering::Release);
        self.rows.restart(head);
        self.leases.go_back(head);
        self.watchers.notify_of_everything(&self.leases, head);
        // The database may have lost locks with the commits.
        self.watchers.notify(News::LocksLost);
    }

    /// Returns the state in which a read begins.
    pub(crate) fn mark(&self) -> Mark {
        self.rows.mark(self.head())
    }

    /// Returns the callbacks that are notified of other sessions' commits.
    pub(crate) fn watchers(&self) -> &Watchers {
        &self.watchers
    }

    /// Returns the leases of sessions.
    pub(crate) fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Returns the cache of records.
    pub(crate) fn rows(&self) -> &RowCache {
        &self.rows
    }

    /// Returns the state of a key from the cache, if it is cached: its record, or the inner `None` if it has no record.
    pub(crate) fn cached(&self, key: &[u8]) -> Option<Option<Versioned>> {
        let followed_at = *self.followed_at.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent = followed_at.is_none_or(|at| at.elapsed() <= LAG_MAX);
        if is_recent && self.leases.allows_cache() { self.rows.get(key) } else { None }
    }

    /// Notes that the log was read to its end, as it was at this time.
    pub(crate) fn note_followed(&self, at: Instant) {
        *self.followed_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }

    /// Returns the number of round trips so far, without those of connecting and of following other sessions.
    pub(crate) fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Relaxed)
    }

    pub(crate) fn count_round_trip(&self) {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
    }

    /// Starts a task on the I/O thread.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Returns a channel for the answer to a caller.
    pub(crate) fn channel<T>(&self) -> (Answer<T>, Outcome<T>) {
        self.tasks.channel()
    }

    /// Runs a task on the I/O thread and waits for its outcome.
    pub(crate) fn wait_for<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, EngineError> {
        self.wait_because(WaitReason::Call, task)
    }

    /// Like [`Self::wait_for`], for another reason than a call.
    pub(crate) fn wait_because<T: Send + 'static>(
        &self,
        reason: WaitReason,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, EngineError> {
        let (answer, outcome) = self.channel();
        self.spawn(async move { answer.send(task.await) });
        outcome.receive(reason)
    }

    /// Runs a call that can be repeated on one of the connections for reads, and waits for its outcome.
    pub(crate) fn call<T, F>(
        self: &Arc<Self>,
        ask: impl Fn(Arc<D::Connection>) -> F + Send + 'static,
    ) -> Result<T, EngineError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let link = self.clone();
        self.wait_for(async move { link.repeat(ask).await })?
    }

    /// Repeats a call until the database answers it, within the budget.
    async fn repeat<T, F>(&self, ask: impl Fn(Arc<D::Connection>) -> F) -> Result<T, EngineError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let slot = &self.readers[self.next_reader.fetch_add(1, Ordering::Relaxed) % READ_CONNECTIONS];
        let mut attempts = Attempts::begin(self.budget);
        loop {
            let connected =
                async { self.reader(slot).await.map_err(|error| Failure::Lost(error.to_string())) };
            let failure = match attempts.within(connected).await {
                Err(failure) => failure,
                Ok(connection) => {
                    self.count_round_trip();
                    match attempts.within(ask(connection.clone())).await {
                        Ok(found) => return Ok(found),
                        Err(failure) => {
                            if matches!(failure, Failure::Lost(_)) {
                                forget_connection(slot, &connection).await;
                            }
                            failure
                        }
                    }
                }
            };
            match failure {
                Failure::Lost(_) | Failure::Aborted(_) if attempts.pause().await => {}
                failure => return Err(failure.into_engine_error()),
            }
        }
    }

    /// Returns the open connection of a slot. Connects if there is none.
    async fn reader(
        &self,
        slot: &Mutex<Option<Arc<D::Connection>>>,
    ) -> Result<Arc<D::Connection>, OpenError> {
        let mut connection = slot.lock().await;
        if let Some(open) = connection.as_ref().filter(|open| open.is_open()) {
            return Ok(open.clone());
        }
        let new = Arc::new(self.database.connect().await?);
        *connection = Some(new.clone());
        Ok(new)
    }
}

/// Removes a lost connection, unless it has been replaced already.
async fn forget_connection<C>(slot: &Mutex<Option<Arc<C>>>, lost: &Arc<C>) {
    let mut connection = slot.lock().await;
    if connection.as_ref().is_some_and(|open| Arc::ptr_eq(open, lost)) {
        *connection = None;
    }
}

/// Attempts at a call within a budget.
pub(crate) struct Attempts {
    deadline: Instant,
    /// Pause before the next attempt.
    pause: Duration,
}

impl Attempts {
    pub(crate) fn begin(budget: Duration) -> Self {
        Self { deadline: Instant::now() + budget, pause: PAUSE_MIN }
    }

    /// Waits for an answer until the budget ends.
    pub(crate) async fn within<T>(
        &self,
        answer: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let answered = timeout_at(self.deadline, answer).await;
        answered.unwrap_or_else(|_| Err(Failure::Lost("the database did not answer in time".into())))
    }

    /// Pauses before the next attempt. Returns false, without a pause, if the budget would end before.
    pub(crate) async fn pause(&mut self) -> bool {
        if Instant::now() + self.pause >= self.deadline {
            return false;
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}
