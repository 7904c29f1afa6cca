//! The queues of invalidations for front ends.
//!
//! The queue of each front end is bounded. An invalidation that does not fit is replaced by the directory or inode that
//! it is about, and these, if they are many or front ends hold little, by one [`Invalidation::Everything`]. So a front
//! end never misses a change.

use futures_util::future::join_all;
use meta::{Ino, Inode, Kind, Origin};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

use super::invalidation::{DeliveryMarker, Invalidation};
use crate::names::Names;

/// Maximum inodes that the kernel holds to invalidate at once.
const BATCH: usize = 1024;
/// Maximum queued invalidations of a front end.
pub(crate) const QUEUE_MAX: usize = 4096;
/// Maximum directories and inodes that replace invalidations that did not fit into a queue; above it, everything is
/// invalidated.
const OVERFLOW_MAX: usize = 256;

/// Maximum wait for front ends to process invalidations while a caller waits.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum wait if no caller waits: longer than any operation during which a kernel holds a lock.
const BACKGROUND_DELIVERY_TIMEOUT: Duration = Duration::from_secs(60);

/// The receiving end of a front end's queue.
#[derive(Debug)]
pub struct InvalidationQueue {
    names: Weak<Names>,
    queue: mpsc::Receiver<Invalidation>,
    overflow: Arc<Overflow>,
}

impl InvalidationQueue {
    /// Waits for the next invalidation; `None` when there will be no more.
    pub async fn recv(&mut self) -> Option<Invalidation> {
        loop {
            match self.try_recv() {
                Ok(next) => return Some(next),
                Err(mpsc::error::TryRecvError::Disconnected) => return None,
                Err(mpsc::error::TryRecvError::Empty) => {}
            }
            let Self { queue, overflow, .. } = self;
            tokio::select! {
                biased;
                () = overflow.wake.notified() => {}
                next = queue.recv() => return next,
            }
        }
    }

    /// Returns the next invalidation if there is one now. Reads the op log first, as far as it is unread.
    pub fn try_recv(&mut self) -> Result<Invalidation, mpsc::error::TryRecvError> {
        loop {
            // Read first: an op that is unread now is unread no longer if a task reads it meanwhile.
            let has_unread = self.names.upgrade().is_some_and(|names| names.follow_page());
            if let Some(lost) = self.overflow.take() {
                return Ok(lost);
            }
            match self.queue.try_recv() {
                Err(mpsc::error::TryRecvError::Empty) if has_unread => {}
                next => return next,
            }
        }
    }
}

/// The replacement of what did not fit into a queue.
#[derive(Debug, Default)]
struct Overflow {
    lost: Mutex<Lost>,
    /// Wakes the front end: something was lost, or the op log has unread ops.
    wake: Notify,
}

/// Directories and inodes that replace invalidations which did not fit into a queue.
#[derive(Debug, Default)]
struct Lost {
    /// Whether everything is to be dropped.
    is_everything: bool,
    directories: BTreeSet<Ino>,
    /// Inodes, each with whether its data is to be dropped too.
    inodes: BTreeMap<Ino, bool>,
}

impl Overflow {
    /// Adds the replacement of an invalidation that did not fit. `held` returns how many inodes front ends hold.
    fn note(&self, lost: Invalidation, held: impl FnOnce() -> usize) {
        self.lost().add(lost, held);
        self.wake.notify_one();
    }

    fn take(&self) -> Option<Invalidation> {
        self.lost().take()
    }

    fn lost(&self) -> MutexGuard<'_, Lost> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lost {
    /// Adds the replacement of an invalidation.
    fn add(&mut self, lost: Invalidation, held: impl FnOnce() -> usize) {
        if self.is_everything {
            return;
        }
        match lost {
            Invalidation::Entry { parent, .. } | Invalidation::Directory(parent) => {
                self.directories.insert(parent);
            }
            Invalidation::Inode(ino) | Invalidation::Bytes(ino, _) => {
                self.inodes.insert(ino, true);
            }
            Invalidation::Attributes(ino) => {
                self.inodes.entry(ino).or_insert(false);
            }
            Invalidation::Everything => self.is_everything = true,
            // Its sender waits for space in the queue.
            Invalidation::Reached(_) => return,
        }
        // To drop the few inodes that front ends hold costs less than to find those of a directory.
        if self.directories.len() + self.inodes.len() > OVERFLOW_MAX || held() <= QUEUE_MAX {
            *self = Self { is_everything: true, ..Self::default() };
        }
    }

    fn take(&mut self) -> Option<Invalidation> {
        if std::mem::take(&mut self.is_everything) {
            return Some(Invalidation::Everything);
        }
        if let Some(directory) = self.directories.pop_first() {
            return Some(Invalidation::Directory(directory));
        }
        let (ino, has_data) = self.inodes.pop_first()?;
        Some(if has_data { Invalidation::Inode(ino) } else { Invalidation::Attributes(ino) })
    }
}

/// The sending end of a front end's queue.
#[derive(Debug, Clone)]
struct Listener {
    queue: mpsc::Sender<Invalidation>,
    overflow: Arc<Overflow>,
}

impl Listener {
    /// Queues an invalidation. Returns false if something else replaces it, because the queue is full.
    fn tell(&self, drop: Invalidation, held: impl FnOnce() -> usize) -> bool {
        if drop == Invalidation::Everything {
            self.overflow.note(drop, held);
            return false;
        }
        match self.queue.try_send(drop) {
            Err(mpsc::error::TrySendError::Full(lost)) => {
                self.overflow.note(lost, held);
                false
            }
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => true,
        }
    }

    /// Queues invalidations and waits until the front end has processed them. What is not queued within `timeout` is replaced as if
    /// the queue were full. Returns false after the timeout.
    async fn deliver(&self, drops: &[Invalidation], timeout: Duration, held: impl Fn() -> usize) -> bool {
        let mut queued = 0;
        let is_delivered = tokio::time::timeout(timeout, send_to(&self.queue, drops, &mut queued)).await;
        for lost in &drops[queued..] {
            self.overflow.note(lost.clone(), &held);
        }
        is_delivered.is_ok()
    }
}

/// The queues of all front ends.
#[derive(Debug, Default)]
pub(crate) struct FrontEnds {
    listeners: Mutex<Vec<Listener>>,
    /// The number of listeners.
    count: AtomicUsize,
}

impl FrontEnds {
    /// Returns the number of front ends.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Returns whether a change by `origin` is news to a front end.
    pub(super) fn must_be_told(&self, origin: Origin) -> bool {
        match origin {
            Origin::Other => self.count() > 0,
            Origin::FrontEnd => self.count() > 1,
            Origin::Bookkeeping => false,
        }
    }

    /// Wakes front ends, so that they read the op log.
    pub(super) fn wake(&self) {
        self.listeners().iter().for_each(|listener| listener.overflow.wake.notify_one());
    }

    /// Returns whether any queue is more than half full.
    pub(crate) fn is_busy(&self) -> bool {
        self.listeners().iter().any(|listener| listener.queue.capacity() < listener.queue.max_capacity() / 2)
    }

    /// Returns whether an invalidation waits in any queue.
    pub(super) fn has_waiting(&self) -> bool {
        self.listeners().iter().any(|listener| listener.queue.capacity() < listener.queue.max_capacity())
    }

    /// Queues all of `drops` for every front end, or nothing. Returns false if a queue lacks the space.
    pub(crate) fn try_tell_all(&self, drops: &[Invalidation]) -> bool {
        let listeners = self.listeners();
        let has_room = listeners.iter().all(|listener| listener.queue.capacity() >= drops.len());
        has_room
            && drops
                .iter()
                .all(|one| listeners.iter().all(|listener| listener.queue.try_send(one.clone()).is_ok()))
    }

    /// Locks the list of front ends, without those that are gone.
    fn listeners(&self) -> MutexGuard<'_, Vec<Listener>> {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| !listener.queue.is_closed());
        self.count.store(listeners.len(), Ordering::Release);
        listeners
    }
}

impl Names {
    /// Subscribes a front end to invalidations from now on.
    pub(crate) fn listen(&self, queue_max: usize) -> InvalidationQueue {
        let (sender, receiver) = mpsc::channel(queue_max);
        let overflow = Arc::<Overflow>::default();
        let mut listeners = self.front_ends().listeners();
        listeners.push(Listener { queue: sender, overflow: overflow.clone() });
        self.front_ends().count.store(listeners.len(), Ordering::Release);
        InvalidationQueue { names: self.weak(), queue: receiver, overflow }
    }

    /// Tells every front end to drop something that no op of the log stands for.
    pub(crate) fn tell(&self, drop: Invalidation) {
        self.tell_all([drop]);
    }

    /// Tells every front end what to drop. Returns false if a queue was full.
    pub(super) fn tell_all(&self, drops: impl IntoIterator<Item = Invalidation>) -> bool {
        // The eviction of names takes the lock of the references before that of the listeners, so they are not held together here.
        let listeners = self.front_ends().listeners().clone();
        let held = || self.references().len();
        let mut is_told = true;
        for drop in drops {
            for listener in &listeners {
                is_told &= listener.tell(drop.clone(), held);
            }
        }
        is_told
    }

    /// Tells front ends that a name may lead elsewhere, although no op changed it.
    pub(crate) fn tell_entry(&self, parent: Ino, name: &[u8]) {
        self.tell(Invalidation::entry(parent, name));
    }

    /// Asks kernels to forget an entry, to free memory. Does nothing while a queue is busy.
    pub(crate) fn request_forget(&self, parent: Ino, name: &[u8]) {
        if !self.front_ends().is_busy() {
            self.front_ends().try_tell_all(&[Invalidation::entry(parent, name)]);
        }
    }

    /// Waits until front ends have processed all changes that were committed before this call, at most
    /// [`DELIVERY_TIMEOUT`].
    pub(crate) async fn delivered(&self) {
        self.deliver(&[]).await;
    }

    /// Like `delivered`, with further invalidations.
    pub(crate) async fn deliver(&self, drops: &[Invalidation]) {
        if !deliver_within(self, drops, DELIVERY_TIMEOUT).await {
            tracing::debug!(
                "a front end has not processed invalidations in time; its kernel may use stale caches until it does"
            );
        }
    }

    /// Like `deliver`, for background tasks: waits as long as operations of front ends on the changed inodes may take,
    /// at most [`BACKGROUND_DELIVERY_TIMEOUT`].
    pub(crate) async fn deliver_patiently(&self, drops: &[Invalidation]) {
        if !deliver_within(self, drops, BACKGROUND_DELIVERY_TIMEOUT).await {
            tracing::warn!(
                "a front end has not processed invalidations for a long time; its kernel may use stale caches until it does"
            );
        }
    }
}

/// Waits until front ends have processed all committed changes and `drops`. Returns false after the timeout. Without
/// front ends, returns true at once.
async fn deliver_within(names: &Names, drops: &[Invalidation], timeout: Duration) -> bool {
    while names.follow_page() {
        tokio::task::yield_now().await;
    }
    let listeners = names.front_ends().listeners().clone();
    let held = || names.references().len();
    let deliveries = listeners.iter().map(|listener| listener.deliver(drops, timeout, held));
    join_all(deliveries).await.into_iter().all(|is_delivered| is_delivered)
}

/// Queues invalidations, counted in `queued`, and waits until they have been processed.
async fn send_to(queue: &mpsc::Sender<Invalidation>, drops: &[Invalidation], queued: &mut usize) {
    for one in drops {
        if queue.send(one.clone()).await.is_err() {
            *queued = drops.len();
            return;
        }
        *queued += 1;
    }
    let (mark, reached) = DeliveryMarker::new();
    if queue.send(Invalidation::Reached(mark)).await.is_ok() {
        reached.await.ok();
    }
}

impl Names {
    /// Returns what `invalidate` adds for a bounded number of the inodes that front ends hold, starting after `after`.
    /// Also returns the last of these inodes, to continue from; `None` if there are no more.
    pub(crate) fn invalidations_after(
        &self,
        after: Option<Ino>,
        invalidate: impl Fn(&Inode, &mut Vec<Invalidation>),
    ) -> Option<(Ino, Vec<Invalidation>)> {
        let held = self.references().after(after, BATCH);
        let last = *held.last()?;
        let mut drops = Vec::with_capacity(3 * held.len());
        let inodes = self.tables().inodes(&held).unwrap_or_default();
        for (ino, inode) in held.iter().zip(inodes.into_iter().chain(std::iter::repeat(None))) {
            for (parent, name) in self.references().take_lost_names(*ino) {
                drops.push(Invalidation::entry(parent, name.as_bytes()));
            }
            match inode {
                Some(inode) => invalidate(&inode, &mut drops),
                // The inode is gone. A program that still has its name looks it up again.
                None => drops.push(Invalidation::Inode(*ino)),
            }
        }
        Some((last, drops))
    }
}

/// Adds invalidations for an inode. A directory's name stays: programs may be in it, and a request for its attributes tells
/// whether it exists.
pub(crate) fn push_invalidations(inode: &Inode, drops: &mut Vec<Invalidation>) {
    if let Some((dir, name)) = inode.home.as_ref().filter(|_| inode.kind != Kind::Directory) {
        drops.push(Invalidation::entry(*dir, name.as_bytes()));
    }
    drops.push(Invalidation::Attributes(inode.ino));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(lost: &mut Lost) -> Vec<Invalidation> {
        std::iter::from_fn(|| lost.take()).collect()
    }

    #[test]
    fn what_does_not_fit_is_replaced_by_its_directory_or_inode() {
        let mut lost = Lost::default();
        let many = || QUEUE_MAX + 1;
        for name in [b"a", b"b"] {
            lost.add(Invalidation::entry(Ino(5), name), many);
        }
        lost.add(Invalidation::Attributes(Ino(7)), many);
        lost.add(Invalidation::Bytes(Ino(8), 3..9), many);
        lost.add(Invalidation::Inode(Ino(9)), many);
        lost.add(Invalidation::Attributes(Ino(9)), many);
        let inodes =
            [Invalidation::Attributes(Ino(7)), Invalidation::Inode(Ino(8)), Invalidation::Inode(Ino(9))];
        assert_eq!(taken(&mut lost), [&[Invalidation::Directory(Ino(5))][..], &inodes].concat());
        assert_eq!(taken(&mut lost), []);
    }

    #[test]
    fn many_directories_and_few_held_inodes_become_everything() {
        let mut lost = Lost::default();
        for dir in 0..=OVERFLOW_MAX as u64 {
            lost.add(Invalidation::Directory(Ino(dir)), || QUEUE_MAX + 1);
        }
        assert_eq!(taken(&mut lost), [Invalidation::Everything]);
        lost.add(Invalidation::Inode(Ino(1)), || QUEUE_MAX);
        assert_eq!(taken(&mut lost), [Invalidation::Everything]);
        lost.add(Invalidation::Everything, || QUEUE_MAX + 1);
        lost.add(Invalidation::Inode(Ino(1)), || QUEUE_MAX + 1);
        assert_eq!(taken(&mut lost), [Invalidation::Everything]);
    }
}
