//! Events for subscribers in this process.

use crate::ObjectEvent;
use std::sync::Arc;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// Events that a subscriber may be behind.
const BEHIND_MAX: usize = 4096;

/// What a subscriber hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Something happened.
    Event(Arc<ObjectEvent>),
    /// So many events, or more, passed unheard: only a look at all objects says what is.
    Lost(u64),
}

/// Where events are told to everybody who subscribed. Nobody who tells waits.
#[derive(Debug, Clone)]
pub struct Channel(broadcast::Sender<Heard>);

impl Default for Channel {
    fn default() -> Self {
        Self(broadcast::Sender::new(BEHIND_MAX))
    }
}

impl Channel {
    /// Hears everything from now on.
    pub fn subscribe(&self) -> Subscription {
        Subscription(self.0.subscribe())
    }

    /// Whether anybody listens.
    pub fn is_heard(&self) -> bool {
        self.0.receiver_count() > 0
    }

    /// Tells all subscribers.
    pub fn tell(&self, heard: Heard) {
        // An error says that nobody listens.
        drop(self.0.send(heard));
    }
}

/// A subscriber's end of a channel.
#[derive(Debug)]
pub struct Subscription(broadcast::Receiver<Heard>);

impl Subscription {
    /// The next, in the order of telling; `None` when the channel is gone.
    pub async fn next(&mut self) -> Option<Heard> {
        match self.0.recv().await {
            Ok(heard) => Some(heard),
            Err(RecvError::Lagged(count)) => Some(Heard::Lost(count)),
            Err(RecvError::Closed) => None,
        }
    }

    /// The next, if there is one already.
    pub fn next_ready(&mut self) -> Option<Heard> {
        match self.0.try_recv() {
            Ok(heard) => Some(heard),
            Err(TryRecvError::Lagged(count)) => Some(Heard::Lost(count)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }
}
