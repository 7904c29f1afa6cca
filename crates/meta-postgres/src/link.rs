//! The I/O thread, its connections for reads, and the wait of callers for it.
//!
//! Callers of an engine are synchronous. They wait without blocking the runtime that they are on: a thread of a multi-threaded runtime first
//! hands its other tasks to another thread.
//!
//! Invariant: a call ends within the budget, also while the database cannot be reached.

use crate::connection::{Connection, Endpoint};
use crate::error::{Failure, OpenError};
use meta::{EngineError, Seqno};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep, timeout_at};

/// Connections for reads. Reads of several callers share a connection; their statements are sent without waiting for each other.
const READ_CONNECTIONS: usize = 2;

/// Pauses before a repeated attempt: the first one, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The I/O thread of an engine.
pub(crate) struct Link {
    runtime: Option<Runtime>,
    endpoint: Endpoint,
    budget: Duration,
    readers: [Mutex<Option<Arc<Connection>>>; READ_CONNECTIONS],
    next_reader: AtomicUsize,
    /// The newest commit that this process knows.
    head: AtomicU64,
    round_trips: AtomicU64,
}

impl Link {
    pub(crate) fn start(endpoint: Endpoint, budget: Duration) -> Result<Arc<Self>, OpenError> {
        // One thread: the tasks of a call and of its connection run on it in turn, without switching threads.
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("meta-postgres").enable_all().build();
        Ok(Arc::new(Self {
            runtime: Some(runtime.map_err(OpenError::Thread)?),
            endpoint,
            budget,
            readers: Default::default(),
            next_reader: AtomicUsize::new(0),
            head: AtomicU64::new(0),
            round_trips: AtomicU64::new(0),
        }))
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) fn budget(&self) -> Duration {
        self.budget
    }

    pub(crate) fn head(&self) -> Seqno {
        Seqno(self.head.load(Ordering::Acquire))
    }

    /// Raises the newest known commit.
    pub(crate) fn learn_head(&self, head: Seqno) {
        self.head.fetch_max(head.0, Ordering::AcqRel);
    }

    /// Returns the number of round trips so far, those of connecting excluded.
    pub(crate) fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Relaxed)
    }

    pub(crate) fn count_round_trip(&self) {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
    }

    /// Starts a task on the I/O thread.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(task);
        }
    }

    /// Runs a task on the I/O thread and waits for its outcome.
    pub(crate) fn wait_for<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, EngineError> {
        let (answer, outcome) = mpsc::sync_channel(1);
        self.spawn(async move {
            // A caller waits until it is answered.
            let _ = answer.send(task.await);
        });
        receive(&outcome)
    }

    /// Runs a call that can be repeated on one of the connections for reads, and waits for its outcome.
    pub(crate) fn call<T, F>(
        self: &Arc<Self>,
        ask: impl Fn(Arc<Connection>) -> F + Send + 'static,
    ) -> Result<T, EngineError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let link = self.clone();
        self.wait_for(async move { link.repeat(ask).await })?
    }

    /// Repeats a call until the database answers it, within the budget.
    async fn repeat<T, F>(&self, ask: impl Fn(Arc<Connection>) -> F) -> Result<T, EngineError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let slot = &self.readers[self.next_reader.fetch_add(1, Ordering::Relaxed) % READ_CONNECTIONS];
        let mut attempts = Attempts::begin(self.budget);
        loop {
            let failure = match self.reader(slot).await {
                Err(error) => Failure::Lost(error.to_string()),
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

    async fn reader(&self, slot: &Mutex<Option<Arc<Connection>>>) -> Result<Arc<Connection>, OpenError> {
        let mut connection = slot.lock().await;
        if let Some(open) = connection.as_ref().filter(|open| !open.client.is_closed()) {
            return Ok(open.clone());
        }
        let new = Arc::new(self.endpoint.connect().await?);
        *connection = Some(new.clone());
        Ok(new)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The last owner may be a task of the runtime itself, which cannot wait for the end of its thread.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Removes a lost connection, unless it has been replaced already.
async fn forget_connection(slot: &Mutex<Option<Arc<Connection>>>, lost: &Arc<Connection>) {
    let mut connection = slot.lock().await;
    if connection.as_ref().is_some_and(|open| Arc::ptr_eq(open, lost)) {
        *connection = None;
    }
}

/// Receives the answer to a call, without blocking the runtime that the caller is on.
pub(crate) fn receive<T>(outcome: &mpsc::Receiver<T>) -> Result<T, EngineError> {
    let is_on_runtime =
        Handle::try_current().is_ok_and(|now| now.runtime_flavor() == RuntimeFlavor::MultiThread);
    let received =
        if is_on_runtime { tokio::task::block_in_place(|| outcome.recv()) } else { outcome.recv() };
    received.map_err(|_| EngineError::Uncertain("the I/O thread of the metadata engine has ended".into()))
}

/// Attempts at a call within a budget.
pub(crate) struct Attempts {
    deadline: Instant,
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

    /// Pauses before the next attempt. Returns false if the budget has ended.
    pub(crate) async fn pause(&mut self) -> bool {
        if Instant::now() + self.pause >= self.deadline {
            return false;
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}
