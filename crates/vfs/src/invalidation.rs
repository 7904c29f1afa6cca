//! News for the caches of a front end.
//!
//! A hint: the queue is bounded, and what does not fit is dropped, since every cached answer expires by itself.

use bytes::Bytes;
use meta::Ino;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// News queued for a front end that is busy.
const QUEUE_MAX: usize = 4096;

/// How long somebody waits for a front end to hear what changed.
const PATIENCE: Duration = Duration::from_secs(1);

/// What changed behind a front end's back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalidation {
    /// An inode's attributes and data.
    Inode(Ino),
    /// An inode's attributes alone; its data is what it was.
    Attributes(Ino),
    /// What a name stands for.
    Entry {
        /// The directory.
        parent: Ino,
        /// The name in it.
        name: Bytes,
    },
    /// Nothing changed: somebody waits until all that was said before was handed on.
    Reached(Mark),
}

/// A place in the news.
#[derive(Debug, Clone)]
pub struct Mark(Arc<Mutex<Option<oneshot::Sender<()>>>>);

impl Mark {
    fn new() -> (Self, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(sender)))), receiver)
    }

    /// All that was said before was handed on.
    pub fn reached(&self) {
        if let Some(waiter) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waiter.send(()).ok();
        }
    }
}

impl PartialEq for Mark {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Mark {}

#[derive(Debug)]
pub(crate) struct Invalidations {
    sender: mpsc::Sender<Invalidation>,
    receiver: Mutex<Option<mpsc::Receiver<Invalidation>>>,
}

impl Default for Invalidations {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        Self { sender, receiver: Mutex::new(Some(receiver)) }
    }
}

impl Invalidations {
    pub(crate) fn take(&self) -> Option<mpsc::Receiver<Invalidation>> {
        self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn say(&self, news: Invalidation) {
        self.sender.try_send(news).ok();
    }

    pub(crate) fn inode(&self, ino: Ino) {
        self.sender.try_send(Invalidation::Inode(ino)).ok();
    }

    pub(crate) fn attributes(&self, ino: Ino) {
        self.sender.try_send(Invalidation::Attributes(ino)).ok();
    }

    /// Asks for an entry to be let go of, whose memory is wanted; only while there is room for news beside.
    pub(crate) fn let_go(&self, parent: Ino, name: &[u8]) {
        if !self.is_busy() {
            self.entry(parent, name);
        }
    }

    /// Whether half the queue is full.
    pub(crate) fn is_busy(&self) -> bool {
        self.sender.capacity() < QUEUE_MAX / 2
    }

    /// Says what changed, and returns when the front end has handed it on: at once where there is none, and in any case
    /// after a second.
    pub(crate) async fn told(&self, news: Vec<Invalidation>) {
        let is_heard = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).is_none();
        if !is_heard {
            news.into_iter().for_each(|one| drop(self.sender.try_send(one)));
            return;
        }
        let (mark, reached) = Mark::new();
        let told = async {
            for one in news.into_iter().chain([Invalidation::Reached(mark)]) {
                if self.sender.send(one).await.is_err() {
                    return;
                }
            }
            reached.await.ok();
        };
        if tokio::time::timeout(PATIENCE, told).await.is_err() {
            tracing::debug!("the front end has not dropped yet what changed");
        }
    }

    pub(crate) fn entry(&self, parent: Ino, name: &[u8]) {
        self.sender.try_send(Invalidation::Entry { parent, name: Bytes::copy_from_slice(name) }).ok();
    }
}
