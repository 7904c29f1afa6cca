//! News for the caches of front ends.
//!
//! A hint: every front end's queue is bounded, and what does not fit is dropped, since every cached answer expires by
//! itself. Without a front end nobody is told.

use bytes::Bytes;
use futures_util::future::join_all;
use meta::Ino;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// News queued for a front end that is busy.
const QUEUE_MAX: usize = 4096;

/// How long somebody waits for a front end to hear what changed.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long at most where nobody waits: longer than anything is under way that a kernel holds a lock for.
const PATIENCE_MAX: Duration = Duration::from_secs(60);

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

impl Invalidation {
    /// What a name of a directory stands for.
    pub(crate) fn entry(parent: Ino, name: &[u8]) -> Self {
        Self::Entry { parent, name: Bytes::copy_from_slice(name) }
    }
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

/// Who listens.
#[derive(Debug, Default)]
pub(crate) struct Invalidations(Mutex<Vec<mpsc::Sender<Invalidation>>>);

impl Invalidations {
    pub(crate) fn listen(&self) -> mpsc::Receiver<Invalidation> {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        self.listeners().push(sender);
        receiver
    }

    pub(crate) fn say(&self, news: Invalidation) {
        for listener in self.listeners().iter() {
            listener.try_send(news.clone()).ok();
        }
    }

    /// Says all of it to everybody; false if somebody lacks the room.
    pub(crate) fn say_all(&self, news: Vec<Invalidation>) -> bool {
        let listeners = self.listeners();
        let has_room = listeners.iter().all(|listener| listener.capacity() >= news.len());
        has_room
            && news.iter().all(|one| listeners.iter().all(|listener| listener.try_send(one.clone()).is_ok()))
    }

    pub(crate) fn inode(&self, ino: Ino) {
        self.say(Invalidation::Inode(ino));
    }

    /// An inode was changed through a front end, which knows. Where there are several, the others hear of it.
    pub(crate) fn others(&self, ino: Ino) {
        if self.listeners().len() > 1 {
            self.inode(ino);
        }
    }

    pub(crate) fn attributes(&self, ino: Ino) {
        self.say(Invalidation::Attributes(ino));
    }

    pub(crate) fn entry(&self, parent: Ino, name: &[u8]) {
        self.say(Invalidation::entry(parent, name));
    }

    /// Asks for an entry to be let go of, whose memory is wanted; only while there is room for news beside.
    pub(crate) fn let_go(&self, parent: Ino, name: &[u8]) {
        if !self.is_busy() {
            self.entry(parent, name);
        }
    }

    /// Whether half of somebody's queue is full.
    pub(crate) fn is_busy(&self) -> bool {
        self.listeners().iter().any(|listener| listener.capacity() < QUEUE_MAX / 2)
    }

    /// Says what changed, and returns when all front ends have handed it on: at once where there is none, and in any case
    /// after a second.
    pub(crate) async fn told(&self, news: Vec<Invalidation>) {
        if tokio::time::timeout(PATIENCE, self.tell_all(&news)).await.is_err() {
            tracing::debug!("a front end has not dropped yet what changed");
        }
    }

    /// The same, for those whom nobody waits for: it takes as long as what is under way where something changed. What a front
    /// end could not even be handed within a minute it is not told.
    pub(crate) async fn surely_told(&self, news: &[Invalidation]) {
        if tokio::time::timeout(PATIENCE_MAX, self.tell_all(news)).await.is_err() {
            tracing::warn!("a front end stands still: what its kernel keeps may be old until it asks again");
        }
    }

    async fn tell_all(&self, news: &[Invalidation]) {
        let listeners = self.listeners().clone();
        join_all(listeners.iter().map(|listener| tell(listener, news))).await;
    }

    /// Those who are still there.
    fn listeners(&self) -> MutexGuard<'_, Vec<mpsc::Sender<Invalidation>>> {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| !listener.is_closed());
        listeners
    }
}

async fn tell(listener: &mpsc::Sender<Invalidation>, news: &[Invalidation]) {
    let (mark, reached) = Mark::new();
    for one in news.iter().cloned().chain([Invalidation::Reached(mark)]) {
        if listener.send(one).await.is_err() {
            return;
        }
    }
    reached.await.ok();
}
