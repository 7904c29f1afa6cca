//! Verifies objects by HEAD requests, where a hint or a listing says too little. A key is verified once at a time;
//! the number of concurrent requests and of attempts is bounded.

use super::change_log::RecordKind;
use super::container::Container;
use super::object_record::ObjectRecord;
use super::reconcile::{HeadResult, UnverifiedHint};
use super::{Handler, hash};
use futures_util::{StreamExt, stream};
use hashbrown::{HashMap, HashSet};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{ObjectKey, StoreError};
use tokio::sync::Notify;

/// Maximum number of objects that are verified at once.
const VERIFICATIONS_IN_PARALLEL: usize = 32;

/// Maximum number of queued objects; callers that want to add more wait.
const WAITING_MAX: usize = 65_536;

/// Attempts to verify an object, and the wait after the first failure, which doubles with each further one.
const ATTEMPTS_MAX: u32 = 7;
const BACKOFF_MIN: Duration = Duration::from_millis(50);

/// A key to verify, with the latest hint that was not trusted.
pub(super) type VerifyRequest = (Arc<Container>, Box<[u8]>, Option<UnverifiedHint>);

/// Number of a container, and a key in it.
type QueueKey = (u32, Box<[u8]>);

/// Queue of objects to verify.
#[derive(Debug, Default)]
pub(super) struct VerifyQueue {
    queue: Mutex<Queue>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<QueueKey>,
    requested: HashMap<QueueKey, (Arc<Container>, Option<UnverifiedHint>)>,
    in_flight: HashSet<QueueKey>,
    workers: usize,
}

impl VerifyQueue {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of objects that are queued or being verified.
    pub(super) fn count(&self) -> usize {
        let queue = self.queue();
        queue.requested.len() + queue.in_flight.len()
    }

    /// Calls `see` with the container and key of each object that is queued or being verified.
    pub(super) fn for_each(&self, mut see: impl FnMut(u32, &[u8])) {
        let queue = self.queue();
        queue.requested.keys().chain(&queue.in_flight).for_each(|(container, key)| see(*container, key));
    }

    /// Waits until `holds` returns true for the queue.
    async fn wait_until(&self, holds: impl Fn(&Queue) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if holds(&self.queue()) {
                return;
            }
            changed.await;
        }
    }
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.requested.is_empty() && self.in_flight.is_empty()
    }

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

    /// Takes the next key that is not being verified.
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

impl Handler {
    /// Returns when no listing is in progress and every queued object has been verified or given up.
    pub async fn wait_until_idle(&self) {
        loop {
            for container in self.containers().values() {
                let running = container.listing().running.clone();
                if let Some(mut running) = running {
                    // An error means that the listing task is gone, which ends the listing, too.
                    let _ = running.wait_for(Option::is_some).await;
                }
            }
            self.verify_queue.wait_until(Queue::is_empty).await;
            if self.containers().values().all(|container| container.listing().running.is_none()) {
                return;
            }
        }
    }

    /// Queues objects for verification. Waits while the queue is full.
    pub(super) async fn verify_later(&self, requests: Vec<VerifyRequest>) {
        for request in requests {
            self.verify_queue.wait_until(|queue| queue.waiting.len() < WAITING_MAX).await;
            let is_new_worker = {
                let mut queue = self.verify_queue.queue();
                queue.add(request);
                let is_new = queue.workers < VERIFICATIONS_IN_PARALLEL.min(queue.waiting.len());
                queue.workers += usize::from(is_new);
                is_new
            };
            if is_new_worker && let Some(handler) = self.arc_self() {
                tokio::spawn(async move { handler.run_worker().await });
            }
        }
    }

    async fn run_worker(&self) {
        while let Some((container, key, hint)) = self.next_request() {
            self.verify_with_retries(&container, &key, hint.as_ref()).await;
            if let Err(error) = self.flush_log() {
                tracing::warn!(%error, "cannot write the event handler's state");
            }
            self.verify_queue.queue().in_flight.remove(&(container.number, key));
            self.verify_queue.changed.notify_waiters();
        }
    }

    /// Returns the next request. If there is none, the calling worker counts as ended.
    fn next_request(&self) -> Option<VerifyRequest> {
        let mut queue = self.verify_queue.queue();
        let next = queue.pop();
        queue.workers -= usize::from(next.is_none());
        next
    }

    /// Verifies many objects of a container. Returns when each is verified or given up.
    pub(super) async fn verify_all(&self, container: &Arc<Container>, keys: Vec<Box<[u8]>>) {
        let verify = |key: Box<[u8]>| async move { self.verify_with_retries(container, &key, None).await };
        stream::iter(keys).for_each_concurrent(VERIFICATIONS_IN_PARALLEL, verify).await;
    }

    /// Verifies an object, with retries. If all attempts fail, the container is marked for another listing.
    async fn verify_with_retries(&self, container: &Container, key: &[u8], hint: Option<&UnverifiedHint>) {
        let mut backoff = BACKOFF_MIN;
        for _ in 0..ATTEMPTS_MAX {
            match self.verify(container, key, hint).await {
                Ok(true) => return,
                Ok(false) => continue,
                Err(error) if error.is_retryable() => {
                    tokio::time::sleep(backoff).await;
                    backoff *= 2;
                }
                Err(error) => {
                    let key = String::from_utf8_lossy(key).into_owned();
                    tracing::warn!(container = %container.name, key, %error, "cannot verify an object; its container will be listed again");
                    break;
                }
            }
        }
        container.listing().is_stale = true;
    }

    /// Sends one HEAD request and applies its result. Returns false if the known state changed meanwhile, so that the
    /// result was discarded.
    async fn verify(
        &self,
        container: &Container,
        key: &[u8],
        hint: Option<&UnverifiedHint>,
    ) -> Result<bool, StoreError> {
        let hash = hash(container.number, key);
        let Ok(name) = ObjectKey::try_from(key) else { return Ok(true) };
        let Some((version, needs_tags)) = self.version_and_needs(container, hash, key) else {
            return Ok(true);
        };
        let store = self.store_of(container).await?;
        let head = match store.find(&name).await? {
            None => None,
            Some(meta) if meta.tag_count == Some(0) => {
                Some(HeadResult { meta, tags: Some(Default::default()) })
            }
            Some(meta) if !needs_tags => Some(HeadResult { meta, tags: None }),
            Some(meta) => match store.tags(&name).await {
                Ok(tags) => Some(HeadResult { meta, tags: Some(tags) }),
                Err(StoreError::NotFound(_)) => None,
                Err(error) => return Err(error),
            },
        };
        let running = container.running_listing();
        let mut shard = self.shard(hash);
        let Some((table, log)) = shard.table(container.number) else { return Ok(true) };
        if table.find(hash, key).map(|slot| table.version_of(slot)) != version {
            return Ok(false);
        }
        table.apply_head(hash, key, head.as_ref(), hint, running, log);
        let mut record = Vec::new();
        ObjectRecord { key, order: None, live: None }.pack(&mut record);
        log.append(RecordKind::Verified, container.number, &record);
        drop(shard);
        self.notify_changed();
        Ok(true)
    }

    /// Returns the version of the known state, and whether tags are needed; `None` if no view wants the key.
    fn version_and_needs(&self, container: &Container, hash: u64, key: &[u8]) -> Option<(Option<u64>, bool)> {
        let mut shard = self.shard(hash);
        let (table, _) = shard.table(container.number)?;
        let class = table.class_of(key)?;
        let needs = table.class(class).needs;
        Some((table.find(hash, key).map(|slot| table.version_of(slot)), needs.tags))
    }
}
