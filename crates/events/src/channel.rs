//! Publishes events to subscribers in this process.

use crate::ObjectEvent;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::Notify;

/// Maximum number of events that a subscriber may lag behind. Beyond it, the oldest are lost.
const BEHIND_MAX: usize = 4096;

/// Maximum number of buckets whose losses are remembered one by one.
const LOST_BUCKETS_MAX: usize = 64;

/// An item that a subscriber receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelItem {
    /// The next event.
    Event(Arc<ObjectEvent>),
    /// Events of this bucket were lost, or of any bucket if there is no name. Only listing the objects shows their current state.
    Lost(Option<String>),
}

/// A broadcast channel for events. Publishing never waits.
#[derive(Debug, Clone, Default)]
pub struct Channel(Arc<Subscribers>);

#[derive(Debug, Default)]
struct Subscribers(Mutex<Vec<Weak<Queue>>>);

impl Channel {
    /// Subscribes to everything published from now on.
    pub fn subscribe(&self) -> Subscription {
        let queue = Arc::<Queue>::default();
        self.0.lock().push(Arc::downgrade(&queue));
        Subscription(queue)
    }

    /// Returns whether there is a subscriber.
    pub fn has_subscribers(&self) -> bool {
        self.0.lock().iter().any(|queue| queue.strong_count() > 0)
    }

    /// Publishes an item to all subscribers.
    pub fn publish(&self, item: ChannelItem) {
        self.0.lock().retain(|queue| {
            let Some(queue) = queue.upgrade() else { return false };
            queue.change(|state| state.add(item.clone()));
            true
        });
    }
}

impl Subscribers {
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Queue>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Subscribers {
    fn drop(&mut self) {
        for queue in self.lock().iter().filter_map(Weak::upgrade) {
            queue.change(|state| state.is_closed = true);
        }
    }
}

/// The receiving end of a channel.
#[derive(Debug)]
pub struct Subscription(Arc<Queue>);

impl Subscription {
    /// Returns the next item: a loss, or else the next event in the order of publication. `None` when the channel is gone.
    pub async fn next(&mut self) -> Option<ChannelItem> {
        loop {
            {
                let mut state = self.0.lock();
                let next = state.take();
                if next.is_some() || state.is_closed {
                    return next;
                }
            }
            // A change since the look has left a permit.
            self.0.changed.notified().await;
        }
    }

    /// Returns the next item if one is available without waiting; `None` otherwise, also if the channel is gone.
    pub fn next_ready(&mut self) -> Option<ChannelItem> {
        self.0.lock().take()
    }
}

/// Items that a subscriber has not received yet.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<QueueState>,
    /// Wakes the subscriber.
    changed: Notify,
}

#[derive(Debug, Default)]
struct QueueState {
    events: VecDeque<Arc<ObjectEvent>>,
    /// The buckets of lost events; `None` stands for any bucket.
    lost: BTreeSet<Option<String>>,
    is_closed: bool,
}

impl Queue {
    fn change(&self, change: impl FnOnce(&mut QueueState)) {
        change(&mut self.lock());
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    fn add(&mut self, item: ChannelItem) {
        match item {
            ChannelItem::Event(event) => {
                self.events.push_back(event);
                if self.events.len() > BEHIND_MAX
                    && let Some(oldest) = self.events.pop_front()
                {
                    self.lose(Some(&oldest.bucket));
                }
            }
            ChannelItem::Lost(bucket) => self.lose(bucket.as_deref()),
        }
    }

    /// Notes that events of a bucket, or of any bucket, are lost.
    fn lose(&mut self, bucket: Option<&str>) {
        let bucket = bucket.map(str::to_owned);
        if self.lost.contains(&None) || self.lost.contains(&bucket) {
            return;
        }
        if bucket.is_none() || self.lost.len() == LOST_BUCKETS_MAX {
            self.lost = BTreeSet::from([None]);
        } else {
            self.lost.insert(bucket);
        }
    }

    /// Losses come first: a listing that begins after one shows all earlier changes.
    fn take(&mut self) -> Option<ChannelItem> {
        let lost = self.lost.pop_first().map(ChannelItem::Lost);
        lost.or_else(|| self.events.pop_front().map(ChannelItem::Event))
    }
}
