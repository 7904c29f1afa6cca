//! Invalidations for the caches of front ends.
//!
//! The queue of each front end is bounded. On overflow, one [`Invalidation::Everything`] replaces the invalidations that do not
//! fit, so a front end never misses a change.

use bytes::Bytes;
use futures_util::future::join_all;
use meta::{Ino, Inode, Kind};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::names::Names;

/// Inodes in the kernel to invalidate at once.
const BATCH: usize = 1024;
/// Maximum queued invalidations of a front end.
const QUEUE_MAX: usize = 4096;

/// Maximum wait for front ends to process invalidations while a caller waits.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum wait if no caller waits: longer than any operation during which a kernel holds a lock.
const BACKGROUND_DELIVERY_TIMEOUT: Duration = Duration::from_secs(60);

/// A change that a front end has not made itself, so that its cache is stale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalidation {
    /// The attributes and data of an inode.
    Inode(Ino),
    /// The attributes of an inode, but not its data.
    Attributes(Ino),
    /// A range of an inode's data, and its attributes.
    Bytes(Ino, Range<u64>),
    /// The inode under a name.
    Entry {
        /// The directory.
        parent: Ino,
        /// The name in that directory.
        name: Bytes,
    },
    /// All cached state, because more changed than the queue holds, see
    /// [`KernelCaches::everything_held`](crate::KernelCaches::everything_held).
    Everything,
    /// No change: a marker that reports when all earlier invalidations have been processed.
    Reached(DeliveryMarker),
}

impl Invalidation {
    /// Returns the invalidation of a name in a directory.
    pub(crate) fn entry(parent: Ino, name: &[u8]) -> Self {
        Self::Entry { parent, name: Bytes::copy_from_slice(name) }
    }
}

/// A marker in the queue of a front end.
#[derive(Debug, Clone)]
pub struct DeliveryMarker(Arc<Mutex<Option<oneshot::Sender<()>>>>);

impl DeliveryMarker {
    fn new() -> (Self, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(sender)))), receiver)
    }

    /// Reports that all earlier invalidations have been processed.
    pub fn reached(&self) {
        if let Some(waiter) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waiter.send(()).ok();
        }
    }
}

impl PartialEq for DeliveryMarker {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for DeliveryMarker {}

/// The receiving end of a front end's queue.
#[derive(Debug)]
pub struct InvalidationQueue {
    queue: mpsc::Receiver<Invalidation>,
    overflow: Arc<Overflow>,
}

/// Whether the queue has overflowed since the front end was last told so.
#[derive(Debug, Default)]
struct Overflow {
    has_overflowed: AtomicBool,
    noted: Notify,
}

impl InvalidationQueue {
    /// Waits for the next invalidation; `None` when there will be no more.
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

    /// Returns the next invalidation if one is queued.
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

/// The sending end of a front end's queue.
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

/// The queues of all front ends.
#[derive(Debug, Default)]
pub(crate) struct Invalidations(Mutex<Vec<Listener>>);

impl Invalidations {
    pub(crate) fn listen(&self) -> InvalidationQueue {
        let (sender, receiver) = mpsc::channel(QUEUE_MAX);
        let overflow = Arc::<Overflow>::default();
        self.listeners().push(Listener { queue: sender, overflow: overflow.clone() });
        InvalidationQueue { queue: receiver, overflow }
    }

    pub(crate) fn notify(&self, news: Invalidation) {
        for listener in self.listeners().iter() {
            listener.notify(news.clone());
        }
    }

    /// Queues all of `news` for every front end, or nothing. Returns false if a queue lacks the space.
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

    /// Invalidates an inode that was changed through a front end, which knows. With several front ends, the others must be
    /// told.
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

    /// Asks kernels to forget an entry, to free memory. Does nothing while a queue is busy.
    pub(crate) fn request_forget(&self, parent: Ino, name: &[u8]) {
        if !self.is_busy() {
            self.entry(parent, name);
        }
    }

    /// Returns whether any queue is at least half full.
    pub(crate) fn is_busy(&self) -> bool {
        self.listeners().iter().any(|listener| listener.queue.capacity() < QUEUE_MAX / 2)
    }

    /// Sends invalidations, and waits until all front ends have processed them, one second at most. Returns at once without
    /// front ends.
    pub(crate) async fn deliver(&self, news: Vec<Invalidation>) {
        if tokio::time::timeout(DELIVERY_TIMEOUT, self.send_all(&news)).await.is_err() {
            tracing::debug!("a front end has not processed invalidations in time");
        }
    }

    /// Like `deliver`, for background tasks: waits as long as operations of front ends on the changed inodes may take. A front
    /// end that cannot even receive the invalidations within a minute does not get them.
    pub(crate) async fn deliver_patiently(&self, news: &[Invalidation]) {
        if tokio::time::timeout(BACKGROUND_DELIVERY_TIMEOUT, self.send_all(news)).await.is_err() {
            tracing::warn!("a front end does not respond: its kernel may use stale caches until they expire");
        }
    }

    async fn send_all(&self, news: &[Invalidation]) {
        let listeners = self.listeners().clone();
        join_all(listeners.iter().map(|listener| send_to(&listener.queue, news))).await;
    }

    /// Locks the list of front ends, without those that are gone.
    fn listeners(&self) -> MutexGuard<'_, Vec<Listener>> {
        let mut listeners = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| !listener.queue.is_closed());
        listeners
    }
}

async fn send_to(listener: &mpsc::Sender<Invalidation>, news: &[Invalidation]) {
    let (mark, reached) = DeliveryMarker::new();
    for one in news.iter().cloned().chain([Invalidation::Reached(mark)]) {
        if listener.send(one).await.is_err() {
            return;
        }
    }
    reached.await.ok();
}

impl Names {
    /// Returns what `invalidate` adds for a bounded number of the inodes that front ends hold, starting after `after`. Also returns
    /// the last of these inodes, to continue from.
    pub(crate) fn invalidations_after(
        &self,
        after: Option<Ino>,
        invalidate: impl Fn(&Inode, &mut Vec<Invalidation>),
    ) -> Option<(Ino, Vec<Invalidation>)> {
        let held = self.references.after(after, BATCH);
        let last = *held.last()?;
        let mut news = Vec::with_capacity(3 * held.len());
        let inodes = self.tables.inodes(&held).unwrap_or_default();
        for (ino, inode) in held.iter().zip(inodes.into_iter().chain(std::iter::repeat(None))) {
            match inode {
                Some(inode) => invalidate(&inode, &mut news),
                // The inode is gone. A program that still has its name looks it up again.
                None => news.push(Invalidation::Inode(*ino)),
            }
        }
        Some((last, news))
    }
}

/// Adds invalidations for an inode. A directory's name stays: programs may be in it, and a request for its attributes tells
/// whether it exists.
pub(crate) fn push_invalidations(inode: &Inode, news: &mut Vec<Invalidation>) {
    if let Some((dir, name)) = inode.home.as_ref().filter(|_| inode.kind != Kind::Directory) {
        news.push(Invalidation::entry(*dir, name.as_bytes()));
    }
    news.push(Invalidation::Attributes(inode.ino));
}
