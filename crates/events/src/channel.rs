//! Publishes events to subscribers in this process.

use crate::ObjectEvent;
use std::sync::Arc;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// Maximum number of events that a subscriber may lag behind.
const BEHIND_MAX: usize = 4096;

/// An item that a subscriber receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelItem {
    /// The next event.
    Event(Arc<ObjectEvent>),
    /// At least this many events were lost. Only listing all objects shows their current state.
    Lost(u64),
}

/// A broadcast channel for events. Publishing never waits.
#[derive(Debug, Clone)]
pub struct Channel(broadcast::Sender<ChannelItem>);

impl Default for Channel {
    fn default() -> Self {
        Self(broadcast::Sender::new(BEHIND_MAX))
    }
}

impl Channel {
    /// Subscribes to everything published from now on.
    pub fn subscribe(&self) -> Subscription {
        Subscription(self.0.subscribe())
    }

    /// Returns whether there is a subscriber.
    pub fn has_subscribers(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Publishes an item to all subscribers.
    pub fn publish(&self, item: ChannelItem) {
        // An error means that there is no subscriber.
        drop(self.0.send(item));
    }
}

/// The receiving end of a channel.
#[derive(Debug)]
pub struct Subscription(broadcast::Receiver<ChannelItem>);

impl Subscription {
    /// Returns the next item in the order of publication; `None` when the channel is gone.
    pub async fn next(&mut self) -> Option<ChannelItem> {
        match self.0.recv().await {
            Ok(item) => Some(item),
            Err(RecvError::Lagged(count)) => Some(ChannelItem::Lost(count)),
            Err(RecvError::Closed) => None,
        }
    }

    /// Returns the next item if one is available without waiting; `None` otherwise, also if the channel is gone.
    pub fn next_ready(&mut self) -> Option<ChannelItem> {
        match self.0.try_recv() {
            Ok(item) => Some(item),
            Err(TryRecvError::Lagged(count)) => Some(ChannelItem::Lost(count)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}
