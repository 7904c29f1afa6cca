//! News for the caches of front ends.
//!
//! Every front end's queue is bounded. What does not fit is replaced by one [`Invalidation::Everything`], so a front end never
//! misses a change. Without a front end nobody is told.

use bytes::Bytes;
use futures_util::future::join_all;
use meta::Ino;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};

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
    /// A range of an inode's bytes, and its attributes.
    Bytes(Ino, Range<u64>),
    /// What a name stands for.
    Entry {
        /// The directory.
        parent: Ino,
        /// The name in it.
        name: Bytes,
    },
    /// More changed than the queue holds: everything cached may be old, see
    /// [`Filesystem::everything_held`](crate::Filesystem::everything_held).
    Everything,
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

/// A front end's queue, at the end that is read.
#[derive(Debug)]
pub struct News {
    queue: mpsc::Receiver<Invalidation>,
    overflow: Arc<Overflow>,
}

/// Whether something did not fit in a queue since the front end was told so last.
#[derive(Debug, Default)]
struct Overflow {
    has_overflowed: AtomicBool,
    noted: Notify,
}

impl News {
    /// The next change; `None` when there will be no more.
    pub async fn recv(&mut self) -> Option<Invalidation> {
        let Self { queue, overflow } = self;
        loop {
            if overflow.take() {
                return Some(Invalidation::Everything);
            }
            tokio::select! {
                biased;
                () = overflow.noted.notified() => {}
                next = queue.recv() => return next,
            }
        }
    }

    /// The next change that is there already.
    pub fn try_recv(&mut self) -> Result<Invalidation, mpsc::error::TryRecvError> {
        if self.overflow.take() { Ok(Invalidation::Everything) } else { self.queue.try_recv() }
    }
}

impl Overflow {
    fn note(&self) {
        self.has_overflowed.store(true, Ordering::SeqCst);
        self.noted.notify_one();
    }

    fn take(&self) -> bool {
        self.has_overflowed.swap(false, Ordering::SeqCst)
    }
}

/// A front end's queue, at the end that is written.
#[derive(Debug, Clone)]
struct Listener {
    queue: mpsc::Sender<Invalidation>,
    overflow: Arc<Overflow>,
}

impl Listener {
    fn notify(&self, news: Invalidation) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.queue.try_send(news) {
            self.overflow.note();
        }
    }
}

/// The front ends that listen.
#[derive(Debug, Default)]
pub(crate) struct Invalidations(Mutex<Vec<Listener>>);

impl Invalidations {
    pub(crate) fn listen(&self) -> News {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        let overflow = Arc::<Overflow>::default();
        self.listeners().push(Listener { queue: sender, overflow: overflow.clone() });
        News { queue: receiver, overflow }
    }

    pub(crate) fn notify(&self, news: Invalidation) {
        for listener in self.listeners().iter() {
            listener.notify(news.clone());
        }
    }

    /// Says all of it to everybody; false if somebody lacks the room.
    pub(crate) fn try_notify_all(&self, news: Vec<Invalidation>) -> bool {
        let listeners = self.listeners();
        let has_room = listeners.iter().all(|listener| listener.queue.capacity() >= news.len());
        has_room
            && news
                .iter()
                .all(|one| listeners.iter().all(|listener| listener.queue.try_send(one.clone()).is_ok()))
    }

    pub(crate) fn inode(&self, ino: Ino) {
        self.notify(Invalidation::Inode(ino));
    }

    /// An inode was changed through a front end, which knows. Where there are several, the others hear of it.
    pub(crate) fn notify_others(&self, ino: Ino) {
        if self.listeners().len() > 1 {
            self.inode(ino);
        }
    }

    pub(crate) fn attributes(&self, ino: Ino) {
        self.notify(Invalidation::Attributes(ino));
    }

    pub(crate) fn entry(&self, parent: Ino, name: &[u8]) {
        self.notify(Invalidation::entry(parent, name));
    }

    /// Asks for an entry to be let go of, whose memory is wanted; only while there is room for news beside.
    pub(crate) fn request_forget(&self, parent: Ino, name: &[u8]) {
        if !self.is_busy() {
            self.entry(parent, name);
        }
    }

    /// Whether half of somebody's queue is full.
    pub(crate) fn is_busy(&self) -> bool {
        self.listeners().iter().any(|listener| listener.queue.capacity() < QUEUE_MAX / 2)
    }

    /// Says what changed, and returns when all front ends have handed it on: at once where there is none, and in any case
    /// after a second.
    pub(crate) async fn deliver(&self, news: Vec<Invalidation>) {
        if tokio::time::timeout(PATIENCE, self.send_all(&news)).await.is_err() {
            tracing::debug!("a front end has not dropped yet what changed");
        }
    }

    /// The same, for those whom nobody waits for: it takes as long as what is under way where something changed. What a front
    /// end could not even be handed within a minute it is not told.
    pub(crate) async fn deliver_patiently(&self, news: &[Invalidation]) {
        if tokio::time::timeout(PATIENCE_MAX, self.send_all(news)).await.is_err() {
            tracing::warn!("a front end stands still: what its kernel keeps may be old until it asks again");
        }
    }

    async fn send_all(&self, news: &[Invalidation]) {
        let listeners = self.listeners().clone();
        join_all(listeners.iter().map(|listener| send_to(&listener.queue, news))).await;
    }

    /// Those who are still there.
    fn listeners(&self) -> MutexGuard<'_, Vec<Listener>> {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| !listener.queue.is_closed());
        listeners
    }
}

async fn send_to(listener: &mpsc::Sender<Invalidation>, news: &[Invalidation]) {
    let (mark, reached) = Mark::new();
    for one in news.iter().cloned().chain([Invalidation::Reached(mark)]) {
        if listener.send(one).await.is_err() {
            return;
        }
    }
    reached.await.ok();
}
