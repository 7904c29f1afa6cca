//! Load generation: concurrent tasks that execute, time and verify operations.

use super::choice::fnv_hash;
use super::content::{BodyChecker, Content};
use futures_util::StreamExt;
use harness::Histogram;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::{GetOptions, ObjectKey, ObjectStore, Precondition, PutOptions, StoreError};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Maximum number of failed operations of a run, over all its tasks. A run with more says nothing about speed and ends with an error.
const ERRORS_MAX: u64 = 20;

/// A load generator: the clients and the content of their objects.
#[derive(Debug, Clone)]
pub struct Load {
    clients: Arc<[Arc<dyn ObjectStore>]>,
    prefix: Arc<str>,
    content: Content,
    seed: u64,
    verify_every: u64,
    is_stopped: Arc<AtomicBool>,
}

/// The completed operations of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Done {
    /// Time from the begin of the first operation to the end of the last, in seconds.
    pub wall_secs: f64,
    /// Acknowledged PUTs.
    pub put: Operations,
    /// GETs with a complete body.
    pub get: Operations,
    /// DELETEs.
    pub delete: Operations,
    /// Pages of listings.
    pub list: Operations,
    /// Number of bodies compared byte by byte.
    pub compared: u64,
    /// Number of operations that failed after all retries of the client.
    pub errors: u64,
    /// Message of the first error.
    pub first_error: Option<String>,
}

/// The operations of one type.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Operations {
    /// Latencies.
    pub latency: Histogram,
    /// Bytes of bodies; for listings the number of entries.
    pub amount: u64,
}

/// Reasons why a run ends early.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The store returned other bytes than were put.
    #[error("wrong content of {key}: {reason}")]
    WrongBytes {
        /// Key of the object.
        key: String,
        /// Description of the difference.
        reason: String,
    },
    /// A listing does not match the objects that were put.
    #[error("wrong listing: {0}")]
    WrongListing(String),
    /// Too many operations fail.
    #[error("{errors} operations failed, the first with: {first}; see the server's log")]
    Failing {
        /// Number of failed operations.
        errors: u64,
        /// Message of the first error.
        first: String,
    },
    /// The objects of a workload do not fit into the store.
    #[error(
        "the objects need {needed_bytes} bytes, and {room_bytes} are free: use fewer or smaller objects, or a larger device"
    )]
    NoRoom {
        /// Size of all objects, and of the PUTs in flight.
        needed_bytes: u64,
        /// Free space.
        room_bytes: u64,
    },
    /// A call failed that the run cannot do without.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An operation on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Put { object: u64, version: u64, size_bytes: u64 },
    Get { object: u64, size_bytes: u64, is_compared: bool },
    Delete { object: u64 },
}

impl Load {
    /// Makes a load generator for these clients, each with its own connections. All keys begin with `prefix`.
    pub fn new(clients: Vec<Arc<dyn ObjectStore>>, prefix: &str, seed: u64, verify_every: u64) -> Self {
        assert!(!clients.is_empty(), "a load needs at least one client");
        let (clients, content) = (clients.into(), Content::new(seed));
        let (prefix, verify_every) = (prefix.into(), verify_every.max(1));
        Self { clients, prefix, content, seed, verify_every, is_stopped: Arc::default() }
    }

    /// Stops starting operations. Those in flight are completed.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Returns the content of objects.
    pub fn content(&self) -> &Content {
        &self.content
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn clients(&self) -> &[Arc<dyn ObjectStore>] {
        &self.clients
    }

    /// Returns whether the GET with this number compares the whole body.
    pub(super) fn compares(&self, operation: u64) -> bool {
        operation.is_multiple_of(self.verify_every)
    }

    /// Returns the key of an object. As in YCSB, keys are hashed, so objects written one after the other are not adjacent in key order.
    pub(super) fn key(&self, object: u64) -> Result<ObjectKey, StoreError> {
        let text = format!("{}user{:020}", self.prefix, fnv_hash(object));
        ObjectKey::new(text).map_err(|error| StoreError::Invalid(error.to_string()))
    }

    /// Puts version 0 of the objects with the numbers below `objects`.
    ///
    /// # Errors
    /// As [`Load::mix`].
    pub async fn fill(&self, objects: u64, size_bytes: u64, tasks: usize) -> Result<Done, LoadError> {
        let next = AtomicU64::new(0);
        self.run(tasks, move |_| {
            let object = next.fetch_add(1, Ordering::Relaxed);
            (object < objects).then_some(Operation::Put { object, version: 0, size_bytes })
        })
        .await
    }

    /// Removes all objects with the prefix.
    ///
    /// # Errors
    /// The error of the first failed call.
    pub async fn clean(&self) -> Result<(), LoadError> {
        loop {
            let page = self.list_page(None).await?;
            let keys: Vec<ObjectKey> =
                page.entries.into_iter().filter_map(|entry| Some(entry.into_object()?.0.key)).collect();
            if keys.is_empty() {
                return Ok(());
            }
            let client = &self.clients[0];
            let deletions = keys.iter().map(|key| client.delete(key, Precondition::None));
            let deletions = futures_util::stream::iter(deletions).buffer_unordered(super::SMALL_TASKS);
            deletions.collect::<Vec<_>>().await.into_iter().collect::<Result<(), _>>()?;
        }
    }

    /// Lists one page of the objects with the prefix.
    pub(super) async fn list_page(&self, token: Option<String>) -> Result<store::ListPage, StoreError> {
        let prefix = self.prefix.as_bytes().to_vec().into();
        let request =
            store::ListRequest { prefix, token, limit: PAGE_ENTRIES, ..store::ListRequest::default() };
        self.clients[0].list(request).await
    }

    /// Runs tasks that execute the operations returned by `next` (called with the task's number) until it returns
    /// `None` or [`Load::stop`] is called. A wrong body ends the run with an error, and so do too many failed
    /// operations.
    pub(super) async fn run(
        &self,
        tasks: usize,
        next: impl Fn(usize) -> Option<Operation> + Send + Sync + 'static,
    ) -> Result<Done, LoadError> {
        let (next, failures) = (Arc::new(next), Arc::new(Failures::default()));
        let start = Instant::now();
        let mut running = JoinSet::new();
        for task in 0..tasks.max(1) {
            let (load, next, failures) = (self.clone(), Arc::clone(&next), Arc::clone(&failures));
            running.spawn(async move { load.run_task(task, next.as_ref(), &failures).await });
        }
        let mut done = Done::default();
        while let Some(result) = running.join_next().await {
            match result {
                Ok(part) => done.merge(&part?),
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => {}
            }
        }
        done.wall_secs = start.elapsed().as_secs_f64();
        done.errors = failures.count.load(Ordering::Relaxed);
        done.first_error = failures.first.get().cloned();
        Ok(done)
    }

    async fn run_task(
        &self,
        task: usize,
        next: &(impl Fn(usize) -> Option<Operation> + Sync),
        failures: &Failures,
    ) -> Result<Done, LoadError> {
        let client = &self.clients()[task % self.clients.len()];
        let mut done = Done::default();
        while !self.is_stopped.load(Ordering::Relaxed)
            && let Some(operation) = next(task)
        {
            let start = Instant::now();
            match self.execute(client.as_ref(), operation).await {
                Ok(()) => done.count(operation, start.elapsed()),
                Err(LoadError::Store(error)) => failures.add(&error)?,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    async fn execute(&self, client: &dyn ObjectStore, operation: Operation) -> Result<(), LoadError> {
        match operation {
            Operation::Put { object, version, size_bytes } => {
                let body = self.content.payload(object, version, size_bytes);
                client.put(&self.key(object)?, body, PutOptions::default()).await?;
            }
            Operation::Get { object, size_bytes, is_compared } => {
                let key = self.key(object)?;
                let mut response = client.get(&key, GetOptions::default()).await?;
                let mut checker = BodyChecker::new(self.content.clone(), object, is_compared);
                let wrong = |reason: super::content::WrongBytes| LoadError::WrongBytes {
                    key: key.to_string(),
                    reason: reason.to_string(),
                };
                while let Some(piece) = response.body.next().await {
                    checker.check(&piece?).map_err(wrong)?;
                }
                checker.finish(size_bytes).map_err(wrong)?;
            }
            Operation::Delete { object } => client.delete(&self.key(object)?, Precondition::None).await?,
        }
        Ok(())
    }
}

/// Maximum number of entries of an S3 page.
pub(super) const PAGE_ENTRIES: usize = 1000;

impl Done {
    /// Returns the number of operations of all types.
    pub fn operations(&self) -> u64 {
        [&self.put, &self.get, &self.delete, &self.list].iter().map(|kind| kind.latency.count()).sum()
    }

    /// Returns the latencies of all operations.
    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::default();
        [&self.put, &self.get, &self.delete, &self.list].iter().for_each(|kind| all.merge(&kind.latency));
        all
    }

    /// Returns the bytes of bodies that were put and got.
    pub fn bytes(&self) -> u64 {
        self.put.amount + self.get.amount
    }

    fn count(&mut self, operation: Operation, span: Duration) {
        let (kind, bytes) = match operation {
            Operation::Put { size_bytes, .. } => (&mut self.put, size_bytes),
            Operation::Get { size_bytes, is_compared, .. } => {
                self.compared += u64::from(is_compared);
                (&mut self.get, size_bytes)
            }
            Operation::Delete { .. } => (&mut self.delete, 0),
        };
        kind.latency.record(span);
        kind.amount += bytes;
    }

    /// Adds another pass: its operations, errors and time.
    pub(crate) fn add_pass(&mut self, pass: &Self) {
        self.merge(pass);
        self.wall_secs += pass.wall_secs;
        self.errors += pass.errors;
        self.first_error = self.first_error.take().or_else(|| pass.first_error.clone());
    }

    fn merge(&mut self, other: &Self) {
        let kinds = [
            (&mut self.put, &other.put),
            (&mut self.get, &other.get),
            (&mut self.delete, &other.delete),
            (&mut self.list, &other.list),
        ];
        for (kind, other) in kinds {
            kind.latency.merge(&other.latency);
            kind.amount += other.amount;
        }
        self.compared += other.compared;
    }
}

/// The failed operations of a run, over all its tasks.
#[derive(Debug, Default)]
struct Failures {
    count: AtomicU64,
    first: OnceLock<String>,
}

impl Failures {
    fn add(&self, error: &StoreError) -> Result<(), LoadError> {
        let first = self.first.get_or_init(|| error.to_string());
        let errors = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if errors > ERRORS_MAX {
            return Err(LoadError::Failing { errors, first: first.clone() });
        }
        Ok(())
    }
}
