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
    state: Arc<QueueState>,
    /// Whether the front end is processing the invalidation that it received last.
    is_processing: bool,
}

impl InvalidationQueue {
    /// Waits for the next invalidation; `None` when there will be no more. The caller has processed the previous one.
    pub async fn recv(&mut self) -> Option<Invalidation> {
        loop {
            match self.try_recv() {
                Ok(next) => return Some(next),
                Err(mpsc::error::TryRecvError::Disconnected) => return None,
                Err(mpsc::error::TryRecvError::Empty) => {}
            }
            let Self { queue, state, .. } = self;
            tokio::select! {
                biased;
                () = state.wake.notified() => {}
                next = queue.recv() => {
                    self.is_processing = next.is_some();
                    return next;
                }
            }
        }
    }

    /// Returns the next invalidation if there is one now. Reads the op log first, as far as it is unread. The caller has processed the
    /// previous one.
    pub fn try_recv(&mut self) -> Result<Invalidation, mpsc::error::TryRecvError> {
        if std::mem::take(&mut self.is_processing) {
            self.state.unprocessed.fetch_sub(1, Ordering::AcqRel);
        }
        loop {
            // Read first: an op that is unread now is unread no longer if a task reads it meanwhile.
            let has_unread = self.names.upgrade().is_some_and(|names| names.follow_page());
            if let Some(lost) = self.state.take_lost() {
                self.is_processing = true;
                return Ok(lost);
            }
            match self.queue.try_recv() {
                Err(mpsc::error::TryRecvError::Empty) if has_unread => {}
                next => {
                    self.is_processing = next.is_ok();
                    return next;
                }
            }
        }
    }
}

/// The state of a queue that both ends share.
#[derive(Debug, Default)]
struct QueueState {
    /// The replacement of what did not fit into the queue.
    lost: Mutex<Lost>,
    /// Wakes the front end: something was lost, or the op log has unread ops.
    wake: Notify,
    /// Invalidations that are queued or that the front end is processing, without those in `lost`.
    unprocessed: AtomicUsize,
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

impl QueueState {
    /// Adds the replacement of an invalidation that did not fit. `held` returns how many inodes front ends hold.
    fn note_lost(&self, lost: Invalidation, held: impl FnOnce() -> usize) {
        self.lost().add(lost, held);
        self.wake.notify_one();
    }

    /// Takes the next replacement, which is unprocessed from then on.
    fn take_lost(&self) -> Option<Invalidation> {
        let mut lost = self.lost();
        let next = lost.take()?;
        self.unprocessed.fetch_add(1, Ordering::AcqRel);
        Some(next)
    }

    /// Returns whether the front end has something to process, or is processing it.
    fn is_unprocessed(&self) -> bool {
        let is_lost = !self.lost().is_empty();
        is_lost || self.unprocessed.load(Ordering::Acquire) > 0
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

    fn is_empty(&self) -> bool {
        !self.is_everything && self.directories.is_empty() && self.inodes.is_empty()
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
    state: Arc<QueueState>,
}

impl Listener {
    /// Queues an invalidation if there is room.
    fn try_send(&self, drop: Invalidation) -> Result<(), mpsc::error::TrySendError<Invalidation>> {
        match self.queue.try_reserve() {
            Ok(place) => {
                self.put(place, drop);
                Ok(())
            }
            Err(mpsc::error::TrySendError::Full(())) => Err(mpsc::error::TrySendError::Full(drop)),
            Err(mpsc::error::TrySendError::Closed(())) => Err(mpsc::error::TrySendError::Closed(drop)),
        }
    }

    /// Queues an invalidation when there is room. Returns false if the front end has ended.
    async fn send(&self, drop: Invalidation) -> bool {
        let Ok(place) = self.queue.reserve().await else { return false };
        self.put(place, drop);
        true
    }

    /// Counts an invalidation, and puts it into its place in the queue.
    fn put(&self, place: mpsc::Permit<'_, Invalidation>, drop: Invalidation) {
        self.state.unprocessed.fetch_add(1, Ordering::AcqRel);
        place.send(drop);
    }

    /// Queues an invalidation. Returns false if something else replaces it, because the queue is full.
    fn tell(&self, drop: Invalidation, held: impl FnOnce() -> usize) -> bool {
        if drop == Invalidation::Everything {
            self.state.note_lost(drop, held);
            return false;
        }
        match self.try_send(drop) {
            Err(mpsc::error::TrySendError::Full(lost)) => {
                self.state.note_lost(lost, held);
                false
            }
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => true,
        }
    }

    /// Queues invalidations and waits until the front end has processed them. What is not queued within `timeout` is replaced as if
    /// the queue were full. Returns false after the timeout.
    async fn deliver(&self, drops: &[Invalidation], timeout: Duration, held: impl Fn() -> usize) -> bool {
        let mut queued = 0;
        let is_delivered = tokio::time::timeout(timeout, self.send_all(drops, &mut queued)).await;
        for lost in &drops[queued..] {
            self.state.note_lost(lost.clone(), &held);
        }
        is_delivered.is_ok()
    }

    /// Queues invalidations, counted in `queued`, and waits until they have been processed.
    async fn send_all(&self, drops: &[Invalidation], queued: &mut usize) {
        for one in drops {
            if !self.send(one.clone()).await {
                *queued = drops.len();
                return;
            }
            *queued += 1;
        }
        let (mark, reached) = DeliveryMarker::new();
        if self.send(Invalidation::Reached(mark)).await {
            reached.await.ok();
        }
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
        self.listeners().iter().for_each(|listener| listener.state.wake.notify_one());
    }

    /// Returns whether any queue is more than half full.
    pub(crate) fn is_busy(&self) -> bool {
        self.listeners().iter().any(|listener| listener.queue.capacity() < listener.queue.max_capacity() / 2)
    }

    /// Returns whether any front end has not processed an invalidation yet.
    pub(super) fn has_unprocessed(&self) -> bool {
        // The lock of what was lost is taken before that of the references, so it is not held together with that of the listeners.
        let listeners = self.listeners().clone();
        listeners.iter().any(|listener| listener.state.is_unprocessed())
    }

    /// Queues all of `drops` for every front end, or nothing. Returns false if a queue lacks the space.
    pub(crate) fn try_tell_all(&self, drops: &[Invalidation]) -> bool {
        let listeners = self.listeners();
        let has_room = listeners.iter().all(|listener| listener.queue.capacity() >= drops.len());
        has_room
            && drops.iter().all(|one| listeners.iter().all(|listener| listener.try_send(one.clone()).is_ok()))
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
        let state = Arc::<QueueState>::default();
        let mut listeners = self.front_ends().listeners();
        listeners.push(Listener { queue: sender, state: state.clone() });
        self.front_ends().count.store(listeners.len(), Ordering::Release);
        InvalidationQueue { names: self.weak(), queue: receiver, state, is_processing: false }
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

    /// Regression: a lock was granted while an invalidation had been taken from the queue and was not yet in the kernel, which then gave the
    /// new bytes the old length.
    #[test]
    fn an_invalidation_is_unprocessed_until_the_front_end_asks_for_the_next() {
        let (sender, receiver) = mpsc::channel(1);
        let listener = Listener { queue: sender, state: Arc::default() };
        let (names, state) = (Weak::new(), listener.state.clone());
        let mut queue = InvalidationQueue { names, queue: receiver, state, is_processing: false };
        for queued in [Invalidation::Inode(Ino(5)), Invalidation::Everything] {
            assert!(!listener.state.is_unprocessed());
            listener.tell(queued.clone(), || 0);
            assert!(listener.state.is_unprocessed(), "{queued:?} is queued");
            assert_eq!(queue.try_recv().unwrap(), queued);
            assert!(listener.state.is_unprocessed(), "{queued:?} is being processed");
            queue.try_recv().unwrap_err();
        }
        assert!(!listener.state.is_unprocessed());
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
