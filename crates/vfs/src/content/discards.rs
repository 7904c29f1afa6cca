//! Background deletion of objects that nothing refers to any more.
//!
//! Invariants: an object is deleted only after the op that released it survives the loss of power. If the names are backed up, it
//! is deleted only after the newest backup no longer refers to it: a restored file would otherwise have no content. While other machines
//! have the volume mounted, an object is kept for [`READ_ON`], as programs there may have its file open. While a batch is open, nothing is
//! deleted, as programs in it see the volume as it was when the batch began. No caller
//! waits for a store that does not answer: objects then wait in the queue, and once it is full they stay in the bucket. Objects
//! left by a crash, a full queue, a failed sync or a refused deletion only cost space until `tenon gc` finds them.

use futures_util::StreamExt as _;
use meta::Seqno;
use staging::packs::is_pack;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use store::{ObjectKey, StoreError};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Sleep;

use crate::content::Content;
use crate::content::export_mark::ExportMark;
use crate::content::garbage::BatchReaders;

/// Maximum objects in the queue; further callers wait while the store answers.
const WAITING_MAX: usize = 4096;
/// Objects deleted after one sync of the names.
const BATCH: usize = 256;
/// Time for which objects are kept while other sessions of a shared engine are alive, and after which objects that a batch may read are
/// examined again.
const READ_ON: Duration = Duration::from_secs(60);
/// How long objects are gathered for a batch in write-back mode, where a sync of the names costs more than the deletions.
const GATHERED_FOR: Duration = Duration::from_millis(500);
/// Deletions in flight.
const DELETED_AT_ONCE: usize = 16;
/// Objects that wait for the backup of the names at which an early backup is requested.
const HELD_BEFORE_REQUEST: usize = 16 << 10;
/// Maximum objects that wait for the backup of the names, and that are kept for other machines or batches. Further ones stay in the
/// bucket.
const HELD_MAX: usize = 256 << 10;
/// The first and the longest pause after a store did not answer.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

/// The queue of objects to delete.
#[derive(Debug, Default)]
pub(crate) struct Discards {
    /// The queue of the task that deletes; set with the first object.
    queue: OnceLock<mpsc::Sender<ObjectKey>>,
    /// How far the names are backed up; not set if they are not.
    export_mark: OnceLock<Arc<ExportMark>>,
    /// Number of objects that are not deleted yet: those in the queue, being deleted, or held back.
    waiting: AtomicUsize,
    /// Those of the waiting objects that wait for the backup of the names.
    held: AtomicUsize,
    /// Number of waiting objects that are kept for other machines or batches.
    kept: AtomicUsize,
    /// Whether the store did not answer the last attempt.
    is_stuck: AtomicBool,
    /// Notified when an object left the queue or `is_stuck` changed.
    changed: Notify,
    /// Number of callers that wait until no object is kept for other machines or batches any more.
    hurried: watch::Sender<usize>,
}

impl Discards {
    /// Returns how many objects wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Waits until no object waits for anything but the backup of the names or other machines, or the store does not answer.
    pub(crate) async fn wait_until_drained(&self) {
        self.until(|| self.len() == self.held() + self.kept.load(Ordering::Acquire) || self.is_stuck()).await;
    }

    /// Waits until no object waits for its deletion, not even for the backup of the names, or the store does not
    /// answer. Objects that are kept for other machines are deleted now, those that are kept for batches stay in the bucket.
    pub(crate) async fn wait_until_empty(&self) {
        let _hurry = Hurry::begin(&self.hurried);
        self.until(|| self.len() == 0 || self.is_stuck()).await;
    }

    /// Holds objects back from now on until the names have been backed up.
    pub(crate) fn wait_for_exports(&self, mark: Arc<ExportMark>) {
        let _is_first = self.export_mark.set(mark);
    }

    /// Requests a backup of the names, if objects wait for one.
    pub(crate) fn request_export(&self) {
        if let Some(mark) = self.export_mark.get().filter(|_| self.held() > 0) {
            mark.request();
        }
    }

    /// Returns how many objects wait for the backup of the names.
    fn held(&self) -> usize {
        self.held.load(Ordering::Acquire)
    }

    /// Sets the number of objects that wait for the backup of the names.
    fn set_held(&self, count: usize) {
        self.held.store(count, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Waits until `holds` returns true, which is asked again after each change.
    async fn until(&self, holds: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            if holds() {
                return;
            }
            changed.await;
        }
    }

    /// Returns whether the store did not answer the last attempt.
    fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Acquire)
    }

    /// Notes whether the store left the last attempt without an answer.
    fn set_stuck(&self, is_stuck: bool) {
        self.is_stuck.store(is_stuck, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Counts one object less in the queue.
    fn remove_one(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    /// Puts an object into the queue; returns whether it did. Waits for room while the store answers.
    async fn enqueue(&self, queue: &mpsc::Sender<ObjectKey>, key: ObjectKey) -> bool {
        match queue.try_send(key) {
            Ok(()) => true,
            Err(TrySendError::Closed(_)) => false,
            Err(TrySendError::Full(key)) => tokio::select! {
                sent = queue.send(key) => sent.is_ok(),
                () = self.until(|| self.is_stuck()) => false,
            },
        }
    }
}

/// A guard: while it exists, no object is kept for other machines or batches.
struct Hurry<'d>(&'d watch::Sender<usize>);

impl<'d> Hurry<'d> {
    fn begin(hurried: &'d watch::Sender<usize>) -> Self {
        hurried.send_modify(|count| *count += 1);
        Self(hurried)
    }
}

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Content {
    /// Deletes an object in the background. Waits while the queue is full and the store answers; if it does not, the
    /// object stays in the bucket. Keeps a pack, which other
    /// files may use, and in batch mode all objects, as the batch may be discarded.
    pub(crate) async fn discard(&self, key: ObjectKey) {
        if is_pack(&key) || self.mount.config.batch.is_some() {
            return;
        }
        self.discard_unused(key).await;
    }

    /// Deletes an object in the background to which no file refers.
    pub(crate) async fn discard_unused(&self, key: ObjectKey) {
        self.discards.waiting.fetch_add(1, Ordering::AcqRel);
        let queue = self.discards.queue.get_or_init(|| self.start_discarding());
        if !self.discards.enqueue(queue, key.clone()).await {
            tracing::debug!(%key, "an unused object could not be queued for deletion and stays in the bucket; `tenon gc` removes it");
            self.discards.remove_one();
        }
    }

    /// Starts the task that deletes objects, and returns its queue.
    fn start_discarding(&self) -> mpsc::Sender<ObjectKey> {
        let (sender, queue) = mpsc::channel(WAITING_MAX);
        let discarder = Discarder {
            content: self.me.clone(),
            queue,
            held: VecDeque::new(),
            held_count: 0,
            kept: VecDeque::new(),
        };
        tokio::spawn(discarder.run());
        sender
    }

    /// Returns whether programs on other machines may have files of the volume open; true if that cannot be determined.
    fn is_read_elsewhere(&self) -> bool {
        let engine = self.names.tables().engine();
        engine.is_shared() && !matches!(engine.is_alone(), Ok(true))
    }

    /// Takes out of `keys` those that programs in an open batch may read; all if that cannot be determined.
    fn take_read_in_batches(&self, keys: &mut Vec<ObjectKey>) -> Vec<ObjectKey> {
        let engine = self.names.tables().engine();
        if engine.is_shared() {
            // Volumes whose metadata is shared have no batches.
            return Vec::new();
        }
        match BatchReaders::of(engine.as_ref()) {
            Ok(None) => Vec::new(),
            Ok(Some(readers)) => {
                keys.extract_if(.., |key| readers.may_read(&self.mount.layout, key)).collect()
            }
            Err(_) => std::mem::take(keys),
        }
    }

    /// Leaves objects in the bucket, and logs the reason.
    fn leave(&self, keys: &[ObjectKey], why: &str) {
        tracing::debug!(
            count = keys.len(),
            "unused objects stay in the bucket: {why}; `tenon gc` removes them"
        );
        keys.iter().for_each(|_| self.discards.remove_one());
    }

    /// Waits and fills a batch in write-back mode: no caller waits for its deletion, but its sync of the names delays
    /// other syncs.
    async fn gather(&self, queue: &mut mpsc::Receiver<ObjectKey>, batch: &mut Vec<ObjectKey>) {
        if !self.mount.config.write_back {
            return;
        }
        tokio::time::sleep(GATHERED_FOR).await;
        while batch.len() < BATCH
            && let Ok(key) = queue.try_recv()
        {
            batch.push(key);
        }
    }

    /// Deletes objects until the store does not answer; returns those to retry. If the names cannot be synced, leaves
    /// all objects in the bucket and returns none.
    async fn delete_all(&self, keys: Vec<ObjectKey>, are_names_synced: bool) -> Vec<ObjectKey> {
        let synced = if are_names_synced { Ok(()) } else { self.names.sync_names().await };
        if let Err(error) = &synced {
            tracing::warn!(%error, count = keys.len(), "unused objects stay in the bucket: the metadata could not be synced; `tenon gc` removes them");
            keys.iter().for_each(|_| self.discards.remove_one());
            return Vec::new();
        }
        let is_silent = AtomicBool::new(false);
        let deletes: Vec<_> = keys.into_iter().map(|key| self.delete_one(key, &is_silent)).collect();
        let left = futures_util::stream::iter(deletes).buffer_unordered(DELETED_AT_ONCE);
        left.filter_map(std::future::ready).collect().await
    }

    /// Deletes one object, unless `is_silent` says that the store does not answer; returns its key if it is to be
    /// retried.
    async fn delete_one(&self, key: ObjectKey, is_silent: &AtomicBool) -> Option<ObjectKey> {
        if is_silent.load(Ordering::Acquire) {
            return Some(key);
        }
        match self.mount.store.delete(&key, store::Precondition::None).await {
            Ok(()) | Err(StoreError::NotFound(_)) => {}
            Err(error) if error.is_retryable() => {
                tracing::debug!(%key, %error, "an unused object could not be deleted; retrying");
                is_silent.store(true, Ordering::Release);
                return Some(key);
            }
            Err(error) => {
                tracing::warn!(%key, %error, "an unused object could not be deleted and stays in the bucket; `tenon gc` removes it")
            }
        }
        self.discards.remove_one();
        None
    }
}

/// Objects that are kept, each batch with its timer.
type Kept = VecDeque<(Pin<Box<Sleep>>, Vec<ObjectKey>)>;

/// The task that deletes the objects of the queue.
struct Discarder {
    content: Weak<Content>,
    queue: mpsc::Receiver<ObjectKey>,
    /// Objects that wait until the names have been backed up as of a commit, in the order of the commits.
    held: VecDeque<(Seqno, Vec<ObjectKey>)>,
    /// Number of objects in `held`.
    held_count: usize,
    /// Objects that other machines or batches may still read, each batch with the timer of its deletion.
    kept: Kept,
}

impl Discarder {
    async fn run(mut self) {
        loop {
            let exported = self.next_held_exported();
            let hurried = self.content.upgrade().map(|content| content.discards.hurried.subscribe());
            let Some(hurried) = hurried else { return };
            let due = next_due(&mut self.kept, hurried);
            let mut batch = Vec::new();
            tokio::select! {
                is_hurried = due => {
                    let count = if is_hurried { self.kept.len() } else { 1 };
                    let mut batch: Vec<_> = self.kept.drain(..count).flat_map(|(_, batch)| batch).collect();
                    self.note_kept();
                    if is_hurried && let Some(content) = self.content.upgrade() {
                        content.leave(&content.take_read_in_batches(&mut batch), "a batch is open");
                    }
                    if self.delete(batch, false).await.is_none() {
                        return;
                    }
                }
                count = self.queue.recv_many(&mut batch, BATCH) => {
                    if count == 0 || self.take(batch).await.is_none() {
                        return;
                    }
                }
                () = exported => {
                    let Some((_, batch)) = self.held.pop_front() else { continue };
                    if self.release(batch).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    /// Returns when the objects that are held longest may be deleted; never if none is held.
    fn next_held_exported(&self) -> impl Future<Output = ()> + Send + use<> {
        let mark = self.content.upgrade().and_then(|content| content.discards.export_mark.get().cloned());
        let next = mark.zip(self.held.front().map(|(commit, _)| *commit));
        async move {
            match next {
                Some((mark, commit)) => mark.reached(commit).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Deletes objects, or holds them back until the names have been backed up, or gives them up if too many are held.
    /// Returns `None` at the end of the mount.
    async fn take(&mut self, batch: Vec<ObjectKey>) -> Option<()> {
        let content = self.content.upgrade()?;
        let Some(mark) = content.discards.export_mark.get() else {
            if content.is_read_elsewhere() {
                self.keep(&content, batch);
                return Some(());
            }
            drop(content);
            return self.delete(batch, false).await;
        };
        if self.held_count + batch.len() > HELD_MAX {
            content.leave(&batch, "the backup of the names is late");
            return Some(());
        }
        // The op that released an object was committed before the object came into the queue.
        let commit = content.names.tables().engine().head();
        let count = self.held_count + batch.len();
        self.held.push_back((commit, batch));
        self.set_held_count(count);
        if count >= HELD_BEFORE_REQUEST {
            mark.request();
        }
        Some(())
    }

    /// Deletes objects that the newest backup of the names no longer refers to, or keeps them while programs on other machines may read them.
    /// Returns `None` at the end of the mount.
    async fn release(&mut self, batch: Vec<ObjectKey>) -> Option<()> {
        let (content, count) = (self.content.upgrade()?, batch.len());
        if content.is_read_elsewhere() {
            self.keep(&content, batch);
            self.set_held_count(self.held_count - count);
            return Some(());
        }
        drop(content);
        self.set_held_count(self.held_count - count);
        self.delete(batch, true).await
    }

    /// Keeps objects for [`READ_ON`], or gives them up if too many are kept.
    fn keep(&mut self, content: &Content, batch: Vec<ObjectKey>) {
        if self.kept_count() + batch.len() > HELD_MAX {
            content.leave(&batch, "too many are kept for other machines or batches");
            return;
        }
        self.kept.push_back((Box::pin(tokio::time::sleep(READ_ON)), batch));
        self.note_kept();
    }

    fn kept_count(&self) -> usize {
        self.kept.iter().map(|(_, batch)| batch.len()).sum()
    }

    /// Publishes the number of objects that are kept.
    fn note_kept(&self) {
        if let Some(content) = self.content.upgrade() {
            content.discards.kept.store(self.kept_count(), Ordering::Release);
            content.discards.changed.notify_waiters();
        }
    }

    fn set_held_count(&mut self, count: usize) {
        self.held_count = count;
        if let Some(content) = self.content.upgrade() {
            content.discards.set_held(count);
        }
    }

    /// Deletes objects, or keeps them while a batch may read them; retries while the store does not answer. Returns `None` at the end of the
    /// mount.
    async fn delete(&mut self, mut batch: Vec<ObjectKey>, is_exported: bool) -> Option<()> {
        let content = self.content.upgrade()?;
        let read_in_batches = content.take_read_in_batches(&mut batch);
        if !read_in_batches.is_empty() {
            self.keep(&content, read_in_batches);
        }
        drop(content);
        let mut pause = PAUSES.0;
        while !batch.is_empty() {
            let content = self.content.upgrade()?;
            if !is_exported {
                content.gather(&mut self.queue, &mut batch).await;
            }
            // Exported commits are synced.
            batch = content.delete_all(batch, is_exported).await;
            content.discards.set_stuck(!batch.is_empty());
            if content.discards.is_stuck() {
                drop(content);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSES.1);
            }
        }
        Some(())
    }
}

/// Waits until the objects that are kept longest are due, and returns false, or until a caller wants all kept objects to be deleted now,
/// and returns true. Never returns if none is kept.
async fn next_due(kept: &mut Kept, mut hurried: watch::Receiver<usize>) -> bool {
    let Some((timer, _)) = kept.front_mut() else { return std::future::pending().await };
    tokio::select! {
        () = timer => false,
        Ok(_) = hurried.wait_for(|count| *count > 0) => true,
    }
}
