//! A foreign writer that changes the bucket directly, and hints about its changes: true observations, delivered late, twice or never.

use super::key_history::Actor;
use super::shared_state::{SharedState, describe_bytes, object_key};
use crate::files::machine::Mount;
use bytes::Bytes;
use std::time::Duration;
use store::memory::MemoryStore;
use store::{
    CopyOptions, ObjectKey, ObjectMeta, ObjectStore as _, Payload, Precondition, PutOptions, StoreError,
};

/// Maximum number of pending hints.
const HINTS_MAX: usize = 12;
/// Directory markers that the foreign writer makes and deletes.
const MARKERS: [&str; 3] = ["d/", "e/", "d/f/"];
/// Maximum pause between two ops, in milliseconds.
const PAUSE_MS: u64 = 12;

/// An observation of a key at a time.
struct Hint {
    key: ObjectKey,
    seen: Option<ObjectMeta>,
    looked_at: Duration,
}

pub(super) struct ForeignWriter {
    shared: SharedState,
    bucket: MemoryStore,
    hints: Vec<Hint>,
}

impl ForeignWriter {
    pub(super) fn new(shared: SharedState, bucket: MemoryStore) -> Self {
        Self { shared, bucket, hints: Vec::new() }
    }

    pub(super) async fn run_ops(&mut self, mount: &Mount, ops: u64) -> Result<(), String> {
        for _ in 0..ops {
            tokio::time::sleep(Duration::from_millis(self.shared.below(PAUSE_MS))).await;
            self.shared.count_step();
            match self.shared.below(10) {
                0..=3 => self.change(mount).await?,
                4 => self.change_marker().await?,
                5..=6 => self.observe(mount).await?,
                _ => self.deliver_hint(mount).await?,
            }
        }
        Ok(())
    }

    /// Delivers or loses all pending hints, in random order.
    pub(super) async fn deliver_all_hints(&mut self, mount: &Mount) -> Result<(), String> {
        while !self.hints.is_empty() {
            self.deliver_hint(mount).await?;
        }
        Ok(())
    }

    async fn change(&mut self, mount: &Mount) -> Result<(), String> {
        let key = self.shared.random_key();
        let done = match self.shared.below(6) {
            0..=2 => self.put(mount, &key).await,
            3 => self.copy(&key).await,
            _ => self.delete(&key).await,
        };
        done.map_err(|error| format!("direct access to the bucket: {error}"))?;
        if self.shared.below(2) == 0 { self.observe_key(mount, &key).await } else { Ok(()) }
    }

    async fn put(&self, mount: &Mount, key: &str) -> store::Result<()> {
        let (mut content, mut options) = (self.shared.fresh_bytes(), PutOptions::default());
        if self.shared.draw_lookalike()
            && let Ok(Some(like)) = mount.store.find(&store_key(key)?).await
        {
            self.shared.count("foreign objects of equal length and metadata");
            content = self.shared.fresh_bytes_of_len(like.size_bytes);
            options.attributes = like.attributes;
        }
        self.shared.trace_line(format!("foreign writer puts '{key}' {}", describe_bytes(&content)));
        self.note_replaced(key).await?;
        let id = self.shared.begin_set(Actor::Foreign, key, Some(content.clone()));
        self.bucket.put(&store_key(key)?, Payload::from(content), options).await?;
        self.shared.complete(id, true);
        Ok(())
    }

    async fn copy(&self, to: &str) -> store::Result<()> {
        let from = self.shared.random_key();
        if from == to {
            return Ok(());
        }
        let Some(meta) = self.bucket.find(&store_key(&from)?).await? else { return Ok(()) };
        let content = self.content(&meta.object.key).await?;
        self.shared
            .trace_line(format!("foreign writer copies '{from}' to '{to}', {}", describe_bytes(&content)));
        self.note_replaced(to).await?;
        let id = self.shared.begin_set(Actor::Foreign, to, Some(content));
        self.bucket.copy(&meta.object, &store_key(to)?, CopyOptions::default()).await?;
        self.shared.complete(id, true);
        Ok(())
    }

    async fn delete(&self, key: &str) -> store::Result<()> {
        if self.bucket.find(&store_key(key)?).await?.is_none() {
            // A key that exists only in the write-back log is not in the bucket yet.
            return Ok(());
        }
        self.shared.trace_line(format!("foreign writer deletes '{key}'"));
        self.note_replaced(key).await?;
        let id = self.shared.begin_set(Actor::Foreign, key, None);
        self.bucket.delete(&store_key(key)?, Precondition::None).await?;
        self.shared.complete(id, true);
        Ok(())
    }

    /// Notes the content that a change of a key replaces in the bucket. The changes of this writer take effect at once.
    async fn note_replaced(&self, key: &str) -> store::Result<()> {
        if let Some(meta) = self.bucket.find(&store_key(key)?).await? {
            let content = self.content(&meta.object.key).await?;
            self.shared.replaced_in_bucket.borrow_mut().insert(content);
        }
        Ok(())
    }

    async fn content(&self, key: &ObjectKey) -> store::Result<Bytes> {
        super::quiescent_check::content_of(&self.bucket, key).await.map(|(_, content)| content)
    }

    /// Makes or deletes a directory marker. Markers have no content and are not in the history.
    async fn change_marker(&self) -> Result<(), String> {
        let key = MARKERS[self.shared.below(MARKERS.len() as u64) as usize];
        let marker = object_key(key)?;
        let done = match self.shared.below(2) {
            0 => self.bucket.put(&marker, Payload::default(), PutOptions::default()).await.map(drop),
            _ => self.bucket.delete(&marker, Precondition::None).await,
        };
        self.shared.trace_line(format!("foreign writer makes or deletes the marker '{key}'"));
        done.map_err(|error| error.to_string())
    }

    async fn observe(&mut self, mount: &Mount) -> Result<(), String> {
        let key = match self.shared.below(5) {
            0 => MARKERS[self.shared.below(MARKERS.len() as u64) as usize].to_owned(),
            _ => self.shared.random_key(),
        };
        self.observe_key(mount, &key).await
    }

    /// Looks at a key in the bucket, and keeps a hint of what is there. A mount looks at the bucket through its unfinished moves, so a key from
    /// which, or to which, a move is about to take an object gives no hint.
    async fn observe_key(&mut self, mount: &Mount, key: &str) -> Result<(), String> {
        let key = object_key(key)?;
        let looked_at = self.shared.monotonic();
        let seen = self.bucket.find(&key).await.map_err(|error| error.to_string())?;
        if mount.is_at_rest(&key) && self.hints.len() < HINTS_MAX {
            self.hints.push(Hint { key, seen, looked_at });
        }
        Ok(())
    }

    /// Takes a random pending hint: delivers it, possibly keeps it for another delivery, or loses it.
    async fn deliver_hint(&mut self, mount: &Mount) -> Result<(), String> {
        if self.hints.is_empty() {
            return Ok(());
        }
        let hint = self.hints.swap_remove(self.shared.below(self.hints.len() as u64) as usize);
        if self.shared.below(5) == 0 {
            return Ok(());
        }
        let Hint { key, seen, looked_at } = &hint;
        let what = seen.as_ref().map_or("nothing".into(), |meta| format!("{:?}", meta.object.etag));
        self.shared.trace_line(format!("hint: '{key}' was {what} at {}", looked_at.as_nanos()));
        self.shared.count("hints");
        let outcome = mount.fs.reconcile(key, seen.as_ref(), mount.fs.moment_at(*looked_at)).await;
        if self.shared.below(4) == 0 && self.hints.len() < HINTS_MAX {
            self.hints.push(hint);
        }
        match outcome {
            _ if mount.injector.has_crashed() => Ok(()),
            Err(error) if error.errno() != libc::EIO || mount.injector.fault_count() == 0 => {
                Err(format!("a hint failed without a cause: {error}"))
            }
            _ => Ok(()),
        }
    }
}

fn store_key(key: &str) -> store::Result<ObjectKey> {
    ObjectKey::try_from(key).map_err(StoreError::from)
}
