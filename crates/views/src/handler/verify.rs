//! Looking at objects of which hints say too little: each key once at a time, so many at once, and not for ever.

use super::change_log::Mark;
use super::container::Container;
use super::object_record::Known;
use super::reconcile::{Doubt, Looked};
use super::{Handler, hash};
use futures_util::{StreamExt, stream};
use hashbrown::{HashMap, HashSet};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::{ObjectKey, StoreError};
use tokio::sync::Notify;

/// So many looks run at once.
const LOOKS_AT_ONCE: usize = 32;

/// Whoever wants more objects looked at waits.
const WAITING_MAX: usize = 65_536;

/// How often an object is looked at until it counts as unknown, and how long after the first failure, doubled each time.
const TRIES: u32 = 7;
const PAUSE: Duration = Duration::from_millis(50);

/// A key to look at, with the latest hint that asked for it.
pub(super) type Wanted = (Arc<Container>, Box<[u8]>, Option<Doubt>);

/// A container by number, and a key in it.
type Key = (u32, Box<[u8]>);

/// Objects that are to be looked at.
#[derive(Debug, Default)]
pub(super) struct Looks {
    queue: Mutex<Queue>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Key>,
    wanted: HashMap<Key, (Arc<Container>, Option<Doubt>)>,
    in_flight: HashSet<Key>,
    workers: usize,
}

impl Looks {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many wait or are under way.
    pub(super) fn count(&self) -> usize {
        let queue = self.queue();
        queue.wanted.len() + queue.in_flight.len()
    }

    /// Shows the containers and keys of all.
    pub(super) fn each(&self, mut see: impl FnMut(u32, &[u8])) {
        let queue = self.queue();
        queue.wanted.keys().chain(&queue.in_flight).for_each(|(container, key)| see(*container, key));
    }

    /// Waits until what is asked of the queue holds.
    async fn until(&self, holds: impl Fn(&Queue) -> bool) {
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
        self.wanted.is_empty() && self.in_flight.is_empty()
    }

    fn add(&mut self, (container, key, doubt): Wanted) {
        let key = (container.number, key);
        match self.wanted.get_mut(&key) {
            Some((_, latest)) => {
                if doubt.as_ref().map(|doubt| doubt.order) > latest.as_ref().map(|doubt| doubt.order) {
                    *latest = doubt;
                }
            }
            None => {
                self.waiting.push_back(key.clone());
                self.wanted.insert(key, (container, doubt));
            }
        }
    }

    /// The next key that nobody is looking at.
    fn pop(&mut self) -> Option<Wanted> {
        for _ in 0..self.waiting.len() {
            let key = self.waiting.pop_front()?;
            if self.in_flight.contains(&key) {
                self.waiting.push_back(key);
                continue;
            }
            let (container, doubt) = self.wanted.remove(&key)?;
            self.in_flight.insert(key.clone());
            return Some((container, key.1, doubt));
        }
        None
    }
}

impl Handler {
    /// Returns when no listing runs, and all that was noted has been looked at, or given up.
    pub async fn settled(&self) {
        loop {
            for container in self.containers().values() {
                let running = container.listing().running.clone();
                if let Some(mut running) = running {
                    // Ended is ended, however.
                    let _ = running.wait_for(Option::is_some).await;
                }
            }
            self.looks.until(Queue::is_empty).await;
            if self.containers().values().all(|container| container.listing().running.is_none()) {
                return;
            }
        }
    }

    /// Has objects looked at; waits while too many are.
    pub(super) async fn look_later(&self, looks: Vec<Wanted>) {
        for look in looks {
            self.looks.until(|queue| queue.waiting.len() < WAITING_MAX).await;
            let is_new_worker = {
                let mut queue = self.looks.queue();
                queue.add(look);
                let is_new = queue.workers < LOOKS_AT_ONCE.min(queue.waiting.len());
                queue.workers += usize::from(is_new);
                is_new
            };
            if is_new_worker && let Some(me) = self.me() {
                tokio::spawn(async move { me.work().await });
            }
        }
    }

    async fn work(&self) {
        while let Some((container, key, doubt)) = self.next_look() {
            self.look_until_known(&container, &key, doubt.as_ref()).await;
            if let Err(error) = self.keep() {
                tracing::warn!(%error, "the views' state cannot be kept");
            }
            self.looks.queue().in_flight.remove(&(container.number, key));
            self.looks.changed.notify_waiters();
        }
    }

    /// The next look, or one worker less.
    fn next_look(&self) -> Option<Wanted> {
        let mut queue = self.looks.queue();
        let next = queue.pop();
        queue.workers -= usize::from(next.is_none());
        next
    }

    /// Looks at many objects of a container, and returns when all are known.
    pub(super) async fn look_at_all(&self, container: &Arc<Container>, keys: Vec<Box<[u8]>>) {
        let look = |key: Box<[u8]>| async move { self.look_until_known(container, &key, None).await };
        stream::iter(keys).for_each_concurrent(LOOKS_AT_ONCE, look).await;
    }

    /// Looks, again after failures. Of what cannot be known the container's next listing tells.
    async fn look_until_known(&self, container: &Container, key: &[u8], doubt: Option<&Doubt>) {
        let mut pause = PAUSE;
        for _ in 0..TRIES {
            match self.look(container, key, doubt).await {
                Ok(true) => return,
                Ok(false) => continue,
                Err(error) if error.is_retryable() => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                Err(error) => {
                    let key = String::from_utf8_lossy(key).into_owned();
                    tracing::warn!(container = %container.name, key, %error, "an object cannot be looked at");
                    break;
                }
            }
        }
        container.listing().is_stale = true;
    }

    /// Looks once; whether what was seen counts: the object may have changed meanwhile.
    async fn look(
        &self,
        container: &Container,
        key: &[u8],
        doubt: Option<&Doubt>,
    ) -> Result<bool, StoreError> {
        let hash = hash(container.number, key);
        let Ok(name) = ObjectKey::try_from(key) else { return Ok(true) };
        let Some((version, needs_tags)) = self.before_look(container, hash, key) else { return Ok(true) };
        let store = self.store_of(container).await?;
        let looked = match store.find(&name).await? {
            None => None,
            Some(meta) if meta.tag_count == Some(0) => Some(Looked { meta, tags: Some(Default::default()) }),
            Some(meta) if !needs_tags => Some(Looked { meta, tags: None }),
            Some(meta) => match store.tags(&name).await {
                Ok(tags) => Some(Looked { meta, tags: Some(tags) }),
                Err(StoreError::NotFound(_)) => None,
                Err(error) => return Err(error),
            },
        };
        let running = container.running();
        let mut shard = self.shard(hash);
        let Some((table, pen)) = shard.table(container.number) else { return Ok(true) };
        if table.find(hash, key).map(|slot| table.version_of(slot)) != version {
            return Ok(false);
        }
        table.look(hash, key, looked.as_ref(), doubt, running, pen);
        let mut record = Vec::new();
        Known { key, order: None, there: None }.pack(&mut record);
        pen.write(Mark::Looked, container.number, &record);
        drop(shard);
        self.say_news();
        Ok(true)
    }

    /// The version of what is known, and whether tags are needed; `None` if no view wants the key.
    fn before_look(&self, container: &Container, hash: u64, key: &[u8]) -> Option<(Option<u64>, bool)> {
        let mut shard = self.shard(hash);
        let (table, _) = shard.table(container.number)?;
        let class = table.class_of(key)?;
        let needs = table.class(class).needs;
        Some((table.find(hash, key).map(|slot| table.version_of(slot)), needs.tags))
    }
}
