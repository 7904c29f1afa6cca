//! Background deletion of objects that nothing refers to any more.
//!
//! Invariants: an object is deleted only after the op that released it survives the loss of power. If the names are backed up, it
//! is deleted only after the newest backup no longer refers to it: a restored file would otherwise have no content. No caller
//! waits for a store that does not answer: objects then wait in the queue, and once it is full they stay in the bucket. Objects
//! left by a crash, a full queue, a failed sync or a refused deletion only cost space until `tenon gc` finds them.

use futures_util::StreamExt as _;
use meta::Seqno;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use store::{ObjectKey, StoreError};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc};

use crate::content::Content;
use crate::content::export_mark::ExportMark;

/// Maximum objects in the queue; further callers wait while the store answers.
const WAITING_MAX: usize = 4096;
/// Objects deleted after one sync of the names.
const BATCH: usize = 256;
/// How long objects are gathered for a batch in write-back mode, where a sync of the names costs more than the deletions.
const GATHERED_FOR: Duration = Duration::from_millis(500);
/// Deletions in flight.
const DELETED_AT_ONCE: usize = 16;
/// Objects that wait for the backup of the names at which an early backup is requested.
const HELD_BEFORE_REQUEST: usize = 16 << 10;
/// Maximum objects that wait for the backup of the names. Further ones stay in the bucket.
const HELD_MAX: usize = 256 << 10;
/// The first and the longest pause after a store did not answer.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

#[derive(Debug, Default)]
pub(crate) struct Discards {
    queue: OnceLock<mpsc::Sender<ObjectKey>>,
    /// How far the names are backed up; not set if they are not.
    export_mark: OnceLock<Arc<ExportMark>>,
    waiting: AtomicUsize,
    /// Those of the waiting objects that wait for the backup of the names.
    held: AtomicUsize,
    /// Whether the store did not answer the last attempt.
    is_stuck: AtomicBool,
    /// Notified when an object left the queue or `is_stuck` changed.
    changed: Notify,
}

impl Discards {
    /// Returns how many objects wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Waits until no object waits for anything but the backup of the names, or the store does not answer.
    pub(crate) async fn wait_until_drained(&self) {
        self.until(|| self.len() == self.held() || self.is_stuck()).await;
    }

    /// Waits until the queue is empty or the store does not answer.
    pub(crate) async fn wait_until_empty(&self) {
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

    fn held(&self) -> usize {
        self.held.load(Ordering::Acquire)
    }

    fn set_held(&self, count: usize) {
        self.held.store(count, Ordering::Release);
        self.changed.notify_waiters();
    }

    async fn until(&self, holds: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            if holds() {
                return;
            }
            changed.await;
        }
    }

    fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Acquire)
    }

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

impl Content {
    /// Deletes an object in the background.
    pub(crate) async fn discard(&self, key: ObjectKey) {
        self.discards.waiting.fetch_add(1, Ordering::AcqRel);
        let queue = self.discards.queue.get_or_init(|| self.start_discarding());
        if !self.discards.enqueue(queue, key.clone()).await {
            tracing::debug!(%key, "an unused object could not be queued for deletion and stays in the bucket; `tenon gc` removes it");
            self.discards.remove_one();
        }
    }

    fn start_discarding(&self) -> mpsc::Sender<ObjectKey> {
        let (sender, queue) = mpsc::channel(WAITING_MAX);
        let discarder = Discarder { content: self.me.clone(), queue, held: VecDeque::new(), held_count: 0 };
        tokio::spawn(discarder.run());
        sender
    }

    /// Fills a batch in write-back mode: no caller waits for its deletion, but its sync of the names delays those who sync.
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

    /// Deletes objects until the store does not answer; returns those that are left.
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

    /// Deletes one object; returns its key if it is to be retried.
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

/// The task that deletes the objects of the queue.
struct Discarder {
    content: Weak<Content>,
    queue: mpsc::Receiver<ObjectKey>,
    /// Objects that wait until the names have been backed up as of a commit, in the order of the commits.
    held: VecDeque<(Seqno, Vec<ObjectKey>)>,
    held_count: usize,
}

impl Discarder {
    async fn run(mut self) {
        loop {
            let exported = self.next_held_exported();
            let mut batch = Vec::new();
            tokio::select! {
                count = self.queue.recv_many(&mut batch, BATCH) => {
                    if count == 0 || self.take(batch).await.is_none() {
                        return;
                    }
                }
                () = exported => {
                    let Some((_, batch)) = self.held.pop_front() else { continue };
                    self.set_held_count(self.held_count - batch.len());
                    if self.delete(batch, true).await.is_none() {
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

    /// Deletes objects, or holds them back until the names have been backed up. Returns `None` at the end of the mount.
    async fn take(&mut self, batch: Vec<ObjectKey>) -> Option<()> {
        let content = self.content.upgrade()?;
        let Some(mark) = content.discards.export_mark.get() else { return self.delete(batch, false).await };
        if self.held_count + batch.len() > HELD_MAX {
            tracing::debug!(
                count = batch.len(),
                "unused objects stay in the bucket: the backup of the names is late; `tenon gc` removes them"
            );
            batch.iter().for_each(|_| content.discards.remove_one());
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

    fn set_held_count(&mut self, count: usize) {
        self.held_count = count;
        if let Some(content) = self.content.upgrade() {
            content.discards.set_held(count);
        }
    }

    /// Deletes objects; retries while the store does not answer. Returns `None` at the end of the mount.
    async fn delete(&mut self, mut batch: Vec<ObjectKey>, is_exported: bool) -> Option<()> {
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
