//! Objects that nothing refers to any more, on their way out.
//!
//! Invariant: an object goes only after the op that let go of it survives the loss of power. What a crash leaves here is
//! garbage, which costs room and nothing else.

use futures_util::StreamExt as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use store::ObjectKey;
use tokio::sync::{Notify, mpsc};

use crate::Filesystem;

/// Objects that wait; who discards more waits too.
const WAITING_MAX: usize = 4096;
/// Objects deleted after one sync of the names.
const BATCH: usize = 256;
/// How long objects are gathered where a sync of the names costs more than they do.
const GATHERED_FOR: Duration = Duration::from_millis(500);
/// Objects deleted at the same time.
const DELETED_AT_ONCE: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Discards {
    queue: OnceLock<mpsc::Sender<ObjectKey>>,
    waiting: AtomicUsize,
    done: Notify,
}

impl Discards {
    /// How many objects wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Waits until none does.
    pub(crate) async fn drained(&self) {
        loop {
            let done = self.done.notified();
            if self.len() == 0 {
                return;
            }
            done.await;
        }
    }

    fn deleted(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        self.done.notify_waiters();
    }
}

impl Filesystem {
    /// Has an object deleted, not in the caller's way.
    pub(crate) async fn discard(&self, key: ObjectKey) {
        self.discards.waiting.fetch_add(1, Ordering::AcqRel);
        let queue = self.discards.queue.get_or_init(|| self.start_discarding());
        if queue.send(key).await.is_err() {
            self.discards.deleted();
        }
    }

    fn start_discarding(&self) -> mpsc::Sender<ObjectKey> {
        let (sender, mut queue) = mpsc::channel(WAITING_MAX);
        let me = self.me.clone();
        tokio::spawn(async move {
            let mut batch = Vec::new();
            while queue.recv_many(&mut batch, BATCH).await > 0 {
                let Some(me) = me.upgrade() else { return };
                if me.config.write_back {
                    // Nobody waits for the sync below but it costs those who do.
                    tokio::time::sleep(GATHERED_FOR).await;
                    while batch.len() < BATCH
                        && let Ok(key) = queue.try_recv()
                    {
                        batch.push(key);
                    }
                }
                me.delete_all(&mut batch).await;
            }
        });
        sender
    }

    async fn delete_all(&self, keys: &mut Vec<ObjectKey>) {
        let synced = self.sync_names().await;
        if let Err(error) = &synced {
            tracing::warn!(%error, count = keys.len(), "objects that are not needed stay behind: the names are not safe");
        }
        let deletes: Vec<_> = keys.drain(..).map(|key| self.delete_one(key, synced.is_ok())).collect();
        futures_util::stream::iter(deletes).buffer_unordered(DELETED_AT_ONCE).collect::<Vec<()>>().await;
    }

    async fn delete_one(&self, key: ObjectKey, may: bool) {
        if may && let Err(error) = self.delete(&key).await {
            tracing::warn!(%key, %error, "an object that is not needed stays behind");
        }
        self.discards.deleted();
    }
}
