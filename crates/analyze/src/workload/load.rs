//! Clients at work: operations by several tasks at a time, timed and verified.

use super::choice::scrambled;
use super::content::{Body, Content};
use super::histogram::Histogram;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::{GetOptions, ObjectKey, ObjectStore, Precondition, PutOptions, StoreError};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// A run with more failed operations than this, of all its tasks together, says nothing about speed.
const ERRORS_MAX: u64 = 20;

/// Clients, and what they send.
#[derive(Debug, Clone)]
pub struct Load {
    clients: Arc<[Arc<dyn ObjectStore>]>,
    prefix: Arc<str>,
    content: Content,
    seed: u64,
    verify_every: u64,
    is_stopped: Arc<AtomicBool>,
}

/// What was done, and how fast.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Done {
    /// From the first operation's begin to the last one's end, in seconds.
    pub wall_secs: f64,
    /// PUTs that were acknowledged.
    pub put: Operations,
    /// GETs whose body came whole.
    pub get: Operations,
    /// DELETEs.
    pub delete: Operations,
    /// Pages of listings.
    pub list: Operations,
    /// Bodies that were compared byte by byte.
    pub compared: u64,
    /// Operations that failed though they were tried again.
    pub errors: u64,
    /// What the first of them said.
    pub first_error: Option<String>,
}

/// Operations of a kind.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Operations {
    /// How long each took.
    pub latency: Histogram,
    /// Bytes of bodies; of listings entries.
    pub amount: u64,
}

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The store gave other bytes than were put.
    #[error("wrong bytes of {key}: {reason}")]
    WrongBytes {
        /// Whose.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// A listing is not what was put.
    #[error("wrong listing: {0}")]
    WrongListing(String),
    /// Too many operations fail.
    #[error("{errors} operations failed, the first one: {first}; look at the server's log")]
    Failing {
        /// How many.
        errors: u64,
        /// What the first said.
        first: String,
    },
    /// What is to be there does not fit.
    #[error(
        "{needed_bytes} bytes are needed for objects and {room_bytes} are free: take fewer or smaller objects, or a larger device"
    )]
    NoRoom {
        /// What is to be there, and under way at a time.
        needed_bytes: u64,
        /// What there is.
        room_bytes: u64,
    },
    /// A call that everything else needs failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What one task does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Put { object: u64, version: u64, size_bytes: u64 },
    Get { object: u64, size_bytes: u64, is_compared: bool },
    Delete { object: u64 },
}

impl Load {
    /// Load by these clients, each a store with connections of its own, on keys that begin with `prefix`.
    pub fn new(clients: Vec<Arc<dyn ObjectStore>>, prefix: &str, seed: u64, verify_every: u64) -> Self {
        assert!(!clients.is_empty(), "load without a client");
        let (clients, content) = (clients.into(), Content::new(seed));
        let (prefix, verify_every) = (prefix.into(), verify_every.max(1));
        Self { clients, prefix, content, seed, verify_every, is_stopped: Arc::default() }
    }

    /// From now on begins nothing; what is under way goes on to its end.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// The bytes that it sends.
    pub fn content(&self) -> &Content {
        &self.content
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn clients(&self) -> &[Arc<dyn ObjectStore>] {
        &self.clients
    }

    pub(super) fn compares(&self, operation: u64) -> bool {
        operation.is_multiple_of(self.verify_every)
    }

    /// An object's key, as YCSB makes them: neighbours in order of writing are none in the order of keys.
    pub(super) fn key(&self, object: u64) -> Result<ObjectKey, StoreError> {
        let text = format!("{}user{:020}", self.prefix, scrambled(object));
        ObjectKey::new(text).map_err(|error| StoreError::Invalid(error.to_string()))
    }

    /// Puts objects 0 to `objects`, version 0.
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

    /// Removes everything that begins with the prefix.
    ///
    /// # Errors
    /// The first call that fails.
    pub async fn clean(&self) -> Result<(), LoadError> {
        loop {
            let page = self.page(None).await?;
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

    pub(super) async fn page(&self, token: Option<String>) -> Result<store::ListPage, StoreError> {
        let prefix = self.prefix.as_bytes().to_vec().into();
        let request =
            store::ListRequest { prefix, delimiter: None, start_after: None, token, limit: PAGE_ENTRIES };
        self.clients[0].list(request).await
    }

    /// So many tasks, each doing what `next` says for it until that is nothing.
    pub(super) async fn run(
        &self,
        tasks: usize,
        next: impl Fn(usize) -> Option<Operation> + Send + Sync + 'static,
    ) -> Result<Done, LoadError> {
        let (next, failures) = (Arc::new(next), Arc::new(Failures::default()));
        let begun = Instant::now();
        let mut running = JoinSet::new();
        for task in 0..tasks.max(1) {
            let (load, next, failures) = (self.clone(), Arc::clone(&next), Arc::clone(&failures));
            running.spawn(async move { load.work(task, next.as_ref(), &failures).await });
        }
        let mut done = Done::default();
        while let Some(ended) = running.join_next().await {
            match ended {
                Ok(part) => done.merge(&part?),
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => {}
            }
        }
        done.wall_secs = begun.elapsed().as_secs_f64();
        done.errors = failures.count.load(Ordering::Relaxed);
        done.first_error = failures.first.get().cloned();
        Ok(done)
    }

    async fn work(
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
            let begun = Instant::now();
            match self.perform(client.as_ref(), operation).await {
                Ok(()) => done.count(operation, begun.elapsed()),
                Err(LoadError::Store(error)) => failures.add(&error)?,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    async fn perform(&self, client: &dyn ObjectStore, operation: Operation) -> Result<(), LoadError> {
        match operation {
            Operation::Put { object, version, size_bytes } => {
                let body = self.content.payload(object, version, size_bytes);
                client.put(&self.key(object)?, body, PutOptions::default()).await?;
            }
            Operation::Get { object, size_bytes, is_compared } => {
                let key = self.key(object)?;
                let mut got = client.get(&key, GetOptions::default()).await?;
                let mut body = Body::new(self.content.clone(), object, is_compared);
                let wrong = |reason: super::content::WrongBytes| LoadError::WrongBytes {
                    key: key.to_string(),
                    reason: reason.to_string(),
                };
                while let Some(piece) = got.body.next().await {
                    body.take(&piece?).map_err(wrong)?;
                }
                body.end(size_bytes).map_err(wrong)?;
            }
            Operation::Delete { object } => client.delete(&self.key(object)?, Precondition::None).await?,
        }
        Ok(())
    }
}

/// What S3 gives at most in a page.
pub(super) const PAGE_ENTRIES: usize = 1000;

impl Done {
    /// All operations.
    pub fn operations(&self) -> u64 {
        [&self.put, &self.get, &self.delete, &self.list].iter().map(|kind| kind.latency.count()).sum()
    }

    /// How long operations took, of whatever kind.
    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::default();
        [&self.put, &self.get, &self.delete, &self.list].iter().for_each(|kind| all.merge(&kind.latency));
        all
    }

    /// Bytes of bodies, both ways.
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

    /// Adds a further pass: its operations and its time.
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

/// What failed in a run, of all its tasks.
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
