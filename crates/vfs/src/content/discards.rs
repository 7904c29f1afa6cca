//! Objects that nothing refers to any more, on their way out.
//!
//! Invariants: an object goes only after the op that let go of it survives the loss of power. Nobody waits for a store
//! that does not answer: objects then wait in the queue, and beyond its end are left behind. What a crash or a full queue
//! leaves is garbage, which costs room and nothing else until `tenon gc` finds it.

use futures_util::StreamExt as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use store::{ObjectKey, StoreError};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc};

use crate::Filesystem;

/// Objects that wait; who discards more waits too, while they go.
const WAITING_MAX: usize = 4096;
/// Objects deleted after one sync of the names.
const BATCH: usize = 256;
/// How long objects are gathered where a sync of the names costs more than they do.
const GATHERED_FOR: Duration = Duration::from_millis(500);
/// Objects deleted at the same time.
const DELETED_AT_ONCE: usize = 16;
/// The first and the longest wait for a store that did not answer.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));

#[derive(Debug, Default)]
pub(crate) struct Discards {
    queue: OnceLock<mpsc::Sender<ObjectKey>>,
    waiting: AtomicUsize,
    /// The store did not answer the last attempt.
    is_stuck: AtomicBool,
    /// Some are gone, or they are stuck.
    changed: Notify,
}

impl Discards {
    /// How many objects wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Waits until none waits, or the store does not answer.
    pub(crate) async fn drained(&self) {
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

    /// One does not wait any more.
    fn left(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        self.changed.notify_waiters();
    }

    /// Whether the object has a place in the queue. One that is full is waited for while it moves.
    async fn enter(&self, queue: &mpsc::Sender<ObjectKey>, key: ObjectKey) -> bool {
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

impl Filesystem {
    /// Has an object deleted, not in the caller's way.
    pub(crate) async fn discard(&self, key: ObjectKey) {
        self.discards.waiting.fetch_add(1, Ordering::AcqRel);
        let queue = self.discards.queue.get_or_init(|| self.start_discarding());
        if !self.discards.enter(queue, key.clone()).await {
            tracing::debug!(%key, "an object that is not needed stays behind: too many wait for the store");
            self.discards.left();
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

    /// Nobody waits for the sync of a batch, but it costs those who do.
    async fn gather(&self, queue: &mut mpsc::Receiver<ObjectKey>, batch: &mut Vec<ObjectKey>) {
        if !self.config.write_back {
            return;
        }
        tokio::time::sleep(GATHERED_FOR).await;
        while batch.len() < BATCH
            && let Ok(key) = queue.try_recv()
        {
            batch.push(key);
        }
    }

    /// Deletes objects, up to the first that the store does not answer for; those that are left.
    async fn delete_all(&self, keys: Vec<ObjectKey>) -> Vec<ObjectKey> {
        let synced = self.sync_names().await;
        if let Err(error) = &synced {
            tracing::warn!(%error, count = keys.len(), "objects that are not needed stay behind: the names are not safe");
            keys.iter().for_each(|_| self.discards.left());
            return Vec::new();
        }
        let is_silent = AtomicBool::new(false);
        let deletes: Vec<_> = keys.into_iter().map(|key| self.delete_one(key, &is_silent)).collect();
        let left = futures_util::stream::iter(deletes).buffer_unordered(DELETED_AT_ONCE);
        left.filter_map(std::future::ready).collect().await
    }

    /// The key, if it may be deleted later.
    async fn delete_one(&self, key: ObjectKey, is_silent: &AtomicBool) -> Option<ObjectKey> {
        if is_silent.load(Ordering::Acquire) {
            return Some(key);
        }
        match self.store.delete(&key, store::Precondition::None).await {
            Ok(()) | Err(StoreError::NotFound(_)) => {}
            Err(error) if error.is_retryable() => {
                tracing::debug!(%key, %error, "an object that is not needed is deleted later");
                is_silent.store(true, Ordering::Release);
                return Some(key);
            }
            Err(error) => tracing::warn!(%key, %error, "an object that is not needed stays behind"),
        }
        self.discards.left();
        None
    }
}
