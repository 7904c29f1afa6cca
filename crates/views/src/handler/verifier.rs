//! Verifies objects by HEAD requests, where a hint or a listing says too little. A queued key is verified once at a
//! time; a listing verifies its own keys without the queue. The number of concurrent requests of the queue, of those
//! of a listing, and of attempts is bounded.
//!
//! Invariant: an object that cannot be verified has its container marked for another listing, with a line in the log.

use super::container::Container;
use super::objects::{HeadResult, Objects, UnverifiedHint};
use super::state_log::StateLog;
use futures_util::{StreamExt, stream};
use hashbrown::{HashMap, HashSet};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{Buckets, ObjectKey, StoreError};
use tokio::sync::Notify;

/// Maximum number of objects that are verified at once by the queue, and by each listing.
const VERIFICATIONS_IN_PARALLEL: usize = 32;

/// Maximum number of queued objects; callers that want to add more wait.
const WAITING_MAX: usize = 65_536;

/// Maximum number of attempts to verify an object.
const ATTEMPTS_MAX: u32 = 7;
/// Wait after the first failure of the store at an object, which doubles with each further one.
const BACKOFF_MIN: Duration = Duration::from_millis(50);

/// A key to verify, with the latest hint that was not trusted.
pub(super) type VerifyRequest = (Arc<Container>, Box<[u8]>, Option<UnverifiedHint>);

/// Number of a container, and a key in it.
type QueueKey = (u32, Box<[u8]>);

/// The objects to verify, and the workers that do.
#[derive(Debug)]
pub(super) struct Verifier {
    buckets: Arc<dyn Buckets>,
    objects: Arc<Objects>,
    log: Arc<StateLog>,
    queue: Mutex<Queue>,
    queue_changed: Notify,
}

/// The keys that wait, and those that are being verified. A key can be both.
#[derive(Debug, Default)]
struct Queue {
    /// The waiting keys, in the order in which they were added.
    waiting: VecDeque<QueueKey>,
    /// For each waiting key its container and the latest hint that was not trusted.
    requested: HashMap<QueueKey, (Arc<Container>, Option<UnverifiedHint>)>,
    /// The keys that are being verified.
    in_flight: HashSet<QueueKey>,
    /// Number of running workers.
    workers: usize,
}

/// Reason why an object could not be verified.
#[derive(Debug, thiserror::Error)]
enum VerifyError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The known state changed between the request and its answer, at each attempt.
    #[error("the known state of the object changed during each of {ATTEMPTS_MAX} requests")]
    Changed,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.requested.is_empty() && self.in_flight.is_empty()
    }

    /// Adds a key. If it waits already, only a hint with a greater order replaces the one that it has.
    fn add(&mut self, (container, key, hint): VerifyRequest) {
        let key = (container.number, key);
        match self.requested.get_mut(&key) {
            Some((_, latest)) => {
                if hint.as_ref().map(|hint| hint.order) > latest.as_ref().map(|hint| hint.order) {
                    *latest = hint;
                }
            }
            None => {
                self.waiting.push_back(key.clone());
                self.requested.insert(key, (container, hint));
            }
        }
    }

    /// Takes the next waiting key that is not being verified; `None` if there is none.
    fn pop(&mut self) -> Option<VerifyRequest> {
        for _ in 0..self.waiting.len() {
            let key = self.waiting.pop_front()?;
            if self.in_flight.contains(&key) {
                self.waiting.push_back(key);
                continue;
            }
            let (container, hint) = self.requested.remove(&key)?;
            self.in_flight.insert(key.clone());
            return Some((container, key.1, hint));
        }
        None
    }
}

impl Verifier {
    pub(super) fn new(buckets: Arc<dyn Buckets>, objects: Arc<Objects>, log: Arc<StateLog>) -> Self {
        Self { buckets, objects, log, queue: Mutex::default(), queue_changed: Notify::new() }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of objects that are queued or being verified.
    pub(super) fn count(&self) -> usize {
        let queue = self.queue();
        queue.requested.len() + queue.in_flight.len()
    }

    /// Returns the container and key of each object that is queued or being verified.
    pub(super) fn pending(&self) -> Vec<(u32, Box<[u8]>)> {
        let queue = self.queue();
        queue.requested.keys().chain(&queue.in_flight).cloned().collect()
    }

    /// Waits until every queued object was verified or given up.
    pub(super) async fn wait_until_idle(&self) {
        self.wait_until(Queue::is_empty).await;
    }

    /// Waits until `holds` returns true for the queue.
    async fn wait_until(&self, holds: impl Fn(&Queue) -> bool) {
        loop {
            let changed = self.queue_changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if holds(&self.queue()) {
                return;
            }
            changed.await;
        }
    }

    /// Queues objects for verification. Waits while the queue is full.
    pub(super) async fn enqueue(self: &Arc<Self>, requests: impl IntoIterator<Item = VerifyRequest>) {
        for request in requests {
            self.wait_until(|queue| queue.waiting.len() < WAITING_MAX).await;
            let is_new_worker = {
                let mut queue = self.queue();
                queue.add(request);
                let is_new = queue.workers < VERIFICATIONS_IN_PARALLEL.min(queue.waiting.len());
                queue.workers += usize::from(is_new);
                is_new
            };
            if is_new_worker {
                let verifier = Arc::clone(self);
                tokio::spawn(async move { verifier.run_worker().await });
            }
        }
    }

    async fn run_worker(&self) {
        while let Some((container, key, hint)) = self.next_request() {
            self.verify_with_retries(&container, &key, hint.as_ref()).await;
            self.log.flush_or_warn();
            self.queue().in_flight.remove(&(container.number, key));
            self.queue_changed.notify_waiters();
        }
    }

    /// Returns the next request. If there is none, the calling worker counts as ended.
    fn next_request(&self) -> Option<VerifyRequest> {
        let mut queue = self.queue();
        let next = queue.pop();
        queue.workers -= usize::from(next.is_none());
        next
    }

    /// Verifies many objects of a container. Returns when each is verified or given up.
    pub(super) async fn verify_all(&self, container: &Arc<Container>, keys: Vec<Box<[u8]>>) {
        let verify = |key: Box<[u8]>| async move { self.verify_with_retries(container, &key, None).await };
        stream::iter(keys).for_each_concurrent(VERIFICATIONS_IN_PARALLEL, verify).await;
    }

    /// Verifies an object, with retries. If all attempts fail, the container is marked for another listing, which
    /// begins once it is due and a client asks.
    async fn verify_with_retries(&self, container: &Container, key: &[u8], hint: Option<&UnverifiedHint>) {
        if let Err(error) = self.attempt_until_verified(container, key, hint).await {
            let key = String::from_utf8_lossy(key).into_owned();
            tracing::warn!(container = %container.name, key, %error, "cannot verify an object, so views may show an old state of it; its container is listed again when a client next asks for it");
            container.listing().mark_stale();
        }
    }

    async fn attempt_until_verified(
        &self,
        container: &Container,
        key: &[u8],
        hint: Option<&UnverifiedHint>,
    ) -> Result<(), VerifyError> {
        let (mut backoff, mut last) = (BACKOFF_MIN, VerifyError::Changed);
        for _ in 0..ATTEMPTS_MAX {
            match self.verify(container, key, hint).await {
                Ok(true) => return Ok(()),
                Ok(false) => last = VerifyError::Changed,
                Err(error) if error.is_retryable() => {
                    last = error.into();
                    tokio::time::sleep(backoff).await;
                    backoff *= 2;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(last)
    }

    /// Sends one HEAD request and applies its result; does neither if no view wants the key any more. Returns false if
    /// the known state changed meanwhile, so that the result was discarded.
    async fn verify(
        &self,
        container: &Container,
        key: &[u8],
        hint: Option<&UnverifiedHint>,
    ) -> Result<bool, StoreError> {
        let Ok(name) = ObjectKey::try_from(key) else { return Ok(true) };
        let Some(before) = self.objects.version_before(container.number, key) else { return Ok(true) };
        let head = self.head(container, &name, before.needs_tags).await?;
        let running = || container.running_listing();
        let number = container.number;
        if !self.objects.apply_head(number, key, head.as_ref(), (before, hint), running) {
            return Ok(false);
        }
        self.objects.notify_changed();
        Ok(true)
    }

    /// Returns the object's metadata, and its tags if they are needed; `None` if the object does not exist.
    async fn head(
        &self,
        container: &Container,
        name: &ObjectKey,
        needs_tags: bool,
    ) -> Result<Option<HeadResult>, StoreError> {
        let store = container.open_store(&*self.buckets).await?;
        let Some(meta) = store.find(name).await? else { return Ok(None) };
        if meta.tag_count == Some(0) {
            return Ok(Some(HeadResult { meta, tags: Some(Default::default()) }));
        }
        if !needs_tags {
            return Ok(Some(HeadResult { meta, tags: None }));
        }
        match store.tags(name).await {
            Ok(tags) => Ok(Some(HeadResult { meta, tags: Some(tags) })),
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
