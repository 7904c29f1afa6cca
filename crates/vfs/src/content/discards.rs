//! Background deletion of objects that nothing refers to any more.
//!
//! Invariants: an object is deleted only after the op that released it survives the loss of power. No caller waits
//! for a store that does not answer: objects then wait in the queue, and once it is full they stay in the bucket.
//! Objects left by a crash, a full queue, a failed sync or a refused deletion only cost space until `tenon gc` finds
//! them.

use futures_util::StreamExt as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use store::{ObjectKey, StoreError};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc};

use crate::content::Content;

/// Maximum objects in the queue; further callers wait while the store answers.
const WAITING_MAX: usize = 4096;
/// Objects deleted after one sync of the names.
const BATCH: usize = 256;
/// How long objects are gathered for a batch in write-back mode, where a sync of the names costs more than the deletions.
const GATHERED_FOR: Duration = Duration::from_millis(500);
/// Deletions in flight.
const DELETED_AT_ONCE: usize = 16;
/// The first and the longest pause after a store did not answer.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

#[derive(Debug, Default)]
pub(crate) struct Discards {
    queue: OnceLock<mpsc::Sender<ObjectKey>>,
    waiting: AtomicUsize,
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

    /// Waits until the queue is empty or the store does not answer.
    pub(crate) async fn wait_until_drained(&self) {
        self.until(|| self.len() == 0 || self.is_stuck()).await;
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
        let (sender, mut queue) = mpsc::channel(WAITING_MAX);
        let me = self.me.clone();
        tokio::spawn(async move {
            let mut batch = Vec::new();
            while queue.recv_many(&mut batch, BATCH).await > 0 {
                let mut pause = PAUSES.0;
                while !batch.is_empty() {
                    let Some(me) = me.upgrade() else { return };
                    me.gather(&mut queue, &mut batch).await;
                    batch = me.delete_all(batch).await;
                    me.discards.set_stuck(!batch.is_empty());
                    if me.discards.is_stuck() {
                        drop(me);
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(PAUSES.1);
                    }
                }
            }
        });
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
    async fn delete_all(&self, keys: Vec<ObjectKey>) -> Vec<ObjectKey> {
        let synced = self.names.sync_names().await;
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
