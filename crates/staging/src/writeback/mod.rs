//! Write-back: a store that acknowledges a change once a local log has it, and uploads it to the bucket later.
//!
//! An acknowledged change survives the end of the process, and after [`ObjectStore::sync`] the loss of power. Reads
//! and listings show the bucket with the pending changes applied. Changes are uploaded in the background, only the
//! newest of each key. After a restart the log is opened again and the upload continues.
//!
//! A precondition is checked against a pending change of the key, or else when the change is uploaded. An upload that
//! meets another client's object stores our bytes under the key that [`WritebackOptions::lost`] returns, or as a
//! [`Judge`] decides.
//!
//! Invariants: an acknowledged change is in the log until it is in the bucket. The bucket never has a change whose
//! record the log could lose with the power, because after that loss the object would be taken for another client's;
//! except a new object under a key of which the log has nothing else. No object in the bucket is replaced while a
//! pending object is made of it. The log is at most as long as its limit, plus one change and a few segments that are
//! about to be removed.

mod admission;
mod condition;
mod direct_io;
mod drain;
mod early_upload;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod log;
mod log_record;
mod logged_upload;
mod make_change;
mod merged_listing;
mod notes;
mod pending;
mod replay;
mod scan;
mod unsynced_keys;
mod upload_conflict;

use crate::etag_aliases::EtagAliases;
use bytes::Bytes;
use condition::{BucketRead, Condition};
use early_upload::SendMemory;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use log::Log;
use log_record::{ObjectDescription, Record};
use logged_upload::LoggedUpload;
use make_change::NewObject;
use notes::Notes;
use pending::{Extent, Pending, PendingObject, slice_extents};
use replay::{Replay, Replayed};
pub use scan::rot;
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use store::{
    Attributes, Clock, CopyOptions, ETag, Entropy, GetOptions, ListPage, ListRequest, Multipart, Object,
    ObjectKey, ObjectMeta, ObjectRef, ObjectStore, Payload, Precondition, PutOptions, Result, StoreError,
    Tags, blocking, byte_range,
};
use tokio::sync::Notify;
use tokio::time::Instant;
use upload_conflict::JudgeState;
pub(crate) use upload_conflict::require_other_key;
pub use upload_conflict::{Judge, Outcome, Overtaken, Way};

/// Options of a write-back log.
#[derive(Clone)]
pub struct WritebackOptions {
    /// Length of the log, in bytes, above which new changes wait.
    pub limit_bytes: u64,
    /// Number of pending changes at which new changes wait. A change takes some hundred bytes of memory.
    pub limit_changes: usize,
    /// A change that waits for room fails when nothing was uploaded for this long.
    pub patience: Duration,
    /// Age at which a change is uploaded, unless the log is half full. Much is replaced or deleted before that age.
    pub delay: Duration,
    /// Checks a condition on a key without a pending change against the bucket at once, for one more request.
    pub checks_at_once: bool,
    /// Keys that other clients change too. A change without a precondition is made over exactly what the bucket has
    /// under such a key at the time, for one more request, so that what other clients do to the object before the
    /// upload is not lost.
    pub shared: SharedKeys,
    /// No key is used again after its deletion, nor for other bytes: an object that was never uploaded need not be
    /// deleted in the bucket.
    pub keys_are_used_once: bool,
    /// Returns the key for our bytes if another client changed the key in the bucket.
    pub lost: LostKey,
    /// Length from which a multipart upload begins to send its parts to the bucket while it is still being written.
    pub early_bytes: u64,
    /// Memory for bodies that are being uploaded, in bytes.
    pub memory_bytes: u64,
}

/// Returns the key under which the loser of a conflict is kept, from the key in conflict and a random number.
pub type LostKey = Arc<dyn Fn(&ObjectKey, u64) -> ObjectKey + Send + Sync>;

/// Returns whether other clients change a key.
pub type SharedKeys = Arc<dyn Fn(&ObjectKey) -> bool + Send + Sync>;

impl std::fmt::Debug for WritebackOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WritebackOptions").field("limit_bytes", &self.limit_bytes).finish_non_exhaustive()
    }
}

/// The changes that are still to be uploaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Pending changes.
    pub changes: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Changes that the bucket refuses, as far as is known.
    pub refused: usize,
}

/// A store that logs changes in front of another store.
#[derive(Debug)]
pub struct Writeback {
    me: Weak<Self>,
    bucket: Arc<dyn ObjectStore>,
    log: Log,
    pending: Mutex<Pending>,
    /// See [`Writeback::lock_changes`].
    change_lock: Mutex<()>,
    send_memory: SendMemory,
    notes: Notes,
    aliases: Mutex<EtagAliases>,
    next_change: AtomicU64,
    clock: Arc<dyn Clock>,
    entropy: Arc<Entropy>,
    options: WritebackOptions,
    /// Wakes the upload task: a first change is pending, or a caller wants everything uploaded now.
    drain_wake: Arc<Notify>,
    /// Notified when a change was uploaded or an attempt failed.
    progress: Notify,
    /// Attempts in progress. They hold the segments that they read.
    in_flight: AtomicU64,
    /// Number of changes uploaded.
    uploaded: AtomicU64,
    /// Number of callers that want everything uploaded now.
    urgent_callers: AtomicU64,
    judge: Mutex<JudgeState>,
    damage: LogDamage,
}

/// Losses that damage of the disk caused in a log, as found when it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogDamage {
    /// Damaged ranges of the log.
    pub ranges: usize,
    /// Their length in bytes.
    pub bytes: u64,
    /// Keys whose change is lost, as far as they are known.
    pub keys: Vec<ObjectKey>,
    /// Damaged segments that are not needed any more, kept as `*.damaged` in the log's directory.
    pub files: usize,
}

impl LogDamage {
    /// Logs and returns what was lost.
    fn of(dir: &Path, found: &Replayed) -> Self {
        let mut keys = found.lost.clone();
        for damage in &found.damages {
            let key = match &damage.record {
                Some(Record::Put { key, .. } | Record::Delete { key, .. }) => Some(key.clone()),
                _ => None,
            };
            let (dir, key_shown) = (dir.display(), key.as_ref().map(ToString::to_string));
            tracing::error!(%dir, segment = damage.segment, range = ?damage.range, key = key_shown,
                "the write-back log is damaged here; reading continues behind the damage, and the segment is kept");
            keys.extend(key);
        }
        for key in &found.lost {
            tracing::error!(%key, "a change is lost: some of its bytes were in a damaged part of the write-back log");
        }
        let bytes = found.damages.iter().map(|damage| damage.range.end - damage.range.start).sum();
        Self { ranges: found.damages.len(), bytes, keys, files: log::damaged_files(dir) }
    }
}

impl Writeback {
    /// Opens the log in `dir` in front of a bucket. Returns `WouldBlock` if another process has the log open. Logged
    /// changes are visible at once and are uploaded if a runtime is running.
    pub fn open(
        dir: &Path,
        bucket: Arc<dyn ObjectStore>,
        options: WritebackOptions,
        clock: Arc<dyn Clock>,
        entropy: Arc<Entropy>,
    ) -> io::Result<Arc<Self>> {
        let mut replay = Replay::default();
        let log = Log::open(dir, |event| replay.apply(event))?;
        let replayed = replay.finish();
        let damage = LogDamage::of(dir, &replayed);
        let Replayed { pending, last_change, notes, .. } = replayed;
        log.reclaim()?;
        let writeback = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            bucket,
            log,
            pending: Mutex::new(pending),
            change_lock: Mutex::default(),
            send_memory: SendMemory::new(options.memory_bytes),
            notes: Notes::of(notes),
            aliases: Mutex::default(),
            next_change: AtomicU64::new(last_change + 1),
            clock,
            entropy,
            options,
            drain_wake: Arc::default(),
            progress: Notify::new(),
            in_flight: AtomicU64::new(0),
            uploaded: AtomicU64::new(0),
            urgent_callers: AtomicU64::new(0),
            judge: Mutex::default(),
            damage,
        });
        writeback.start();
        Ok(writeback)
    }

    /// Returns how many changes and notes a log in `dir`, which may be missing, holds that the bucket does not have.
    /// Returns `WouldBlock` if a process has the log open.
    pub fn waiting_in(dir: &Path) -> io::Result<usize> {
        if !dir.is_dir() {
            return Ok(0);
        }
        let _lock = log::lock_dir(dir)?;
        let mut replay = Replay::default();
        scan::scan(dir, |event| replay.apply(event))?;
        let Replayed { pending, notes, .. } = replay.finish();
        Ok(pending.len() + notes.len())
    }

    /// Returns the losses found when the log was opened.
    pub fn damage(&self) -> &LogDamage {
        &self.damage
    }

    /// Returns what is still to be uploaded.
    pub fn backlog(&self) -> Backlog {
        let pending = self.pending();
        Backlog { changes: pending.len(), bytes: pending.bytes(), refused: pending.refused_count() }
    }

    /// Returns the numbers of the log's segments, and how many bytes of each survive the loss of power, as far as
    /// this process knows. Simulators cut the rest.
    pub fn synced(&self) -> Vec<(u64, u64)> {
        self.log.synced()
    }

    /// Waits until everything is uploaded, except changes that the bucket refuses once more.
    pub async fn drained(&self) {
        self.urgent_callers.fetch_add(1, Ordering::AcqRel);
        let _urgent = UrgentDrain(self);
        self.pending().retry_refused(Instant::now());
        self.drain_wake.notify_one();
        loop {
            let progress = self.progress.notified();
            if self.pending().has_only_refused() {
                return;
            }
            progress.await;
        }
    }

    /// Waits until the bucket has every change that was made before the call, whatever is changed meanwhile.
    pub async fn drained_so_far(&self) {
        let newest = self.next_change.load(Ordering::Acquire).saturating_sub(1);
        self.urgent_callers.fetch_add(1, Ordering::AcqRel);
        let _urgent = UrgentDrain(self);
        self.drain_wake.notify_one();
        loop {
            let progress = self.progress.notified();
            if self.pending().oldest_number().is_none_or(|oldest| oldest > newest) {
                return;
            }
            progress.await;
        }
    }

    /// Makes everything appended so far survive the loss of power.
    async fn sync_log(&self) -> Result<()> {
        let me = self.me.upgrade().ok_or_else(closed)?;
        blocking(move || me.log.sync()).await.map_err(failed)
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn aliases(&self) -> MutexGuard<'_, EtagAliases> {
        self.aliases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether changes are uploaded without delay, given the number of pending changes.
    fn is_urgent(&self, pending: usize) -> bool {
        self.urgent_callers.load(Ordering::Acquire) > 0
            || self.log.bytes() > self.options.limit_bytes / 2
            || pending > self.options.limit_changes / 2
    }

    /// Reads an object that has no pending change.
    async fn get_from_bucket(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        let if_match = match options.if_match {
            Some(etag) => Some(self.bucket_ref(&ObjectRef::new(key.clone(), etag))?.etag),
            None => None,
        };
        // The etag may be forgotten, but a key that is used once never has other bytes.
        let if_match = if_match.filter(|etag| !etag.is_provisional());
        let mut object = self.bucket.get(key, GetOptions { if_match, ..options }).await?;
        object.meta.object = self.with_issued_tag(object.meta.object);
        Ok(object)
    }

    /// Returns a condition with the bucket's etag.
    fn bucket_condition(&self, key: &ObjectKey, condition: &Precondition) -> Precondition {
        self.aliases().bucket_condition(key, condition)
    }

    /// Returns an object of the bucket with the etag that was issued to callers.
    fn with_issued_tag(&self, object: ObjectRef) -> ObjectRef {
        self.aliases().with_issued_tag(object)
    }

    /// Returns an object with the bucket's etag. Fails if the etag was issued so long ago that its translation is
    /// forgotten, because the bucket may have another object by now.
    fn bucket_ref(&self, object: &ObjectRef) -> Result<ObjectRef> {
        let etag = self.aliases().bucket_tag(&object.key, &object.etag);
        if etag.is_provisional() && !self.options.keys_are_used_once {
            return Err(StoreError::PreconditionFailed(object.key.clone()));
        }
        Ok(ObjectRef { etag, ..object.clone() })
    }

    fn describe(&self, attributes: Attributes, tags: Tags) -> ObjectDescription {
        let etag = ETag::provisional(self.entropy.next_u64());
        ObjectDescription { etag, stored_at: self.clock.now(), attributes, tags }
    }

    fn pending_object(&self, key: &ObjectKey) -> Option<Result<Arc<PendingObject>>> {
        let pending = self.pending();
        let change = pending.get(key)?;
        Some(change.object.clone().ok_or_else(|| StoreError::NotFound(key.clone())))
    }

    /// Returns the pending object of a key, if there is one, and a guard. While the guard exists, the bucket objects
    /// that the pending object is made of, or else the object under the key in the bucket, are not replaced by this
    /// store.
    async fn hold_object(&self, key: &ObjectKey) -> Result<(Option<Arc<PendingObject>>, HeldSources)> {
        let writeback = self.me.upgrade().ok_or_else(closed)?;
        self.complete_if_uploaded(key).await?;
        loop {
            let progress = self.progress.notified();
            {
                let mut pending = self.pending();
                let object = match pending.get(key) {
                    Some(change) => match &change.object {
                        Some(object) => Some(object.clone()),
                        None => return Err(StoreError::NotFound(key.clone())),
                    },
                    None => None,
                };
                let keys =
                    object.as_ref().map_or_else(|| HashSet::from([key.clone()]), |object| object.sources());
                if pending.hold_sources(&keys) {
                    return Ok((object, HeldSources { writeback, keys }));
                }
            }
            progress.await;
        }
    }

    /// Returns the extents, attributes and tags of exactly this object.
    async fn copy_source(&self, from: &ObjectRef) -> Result<CopySource> {
        let (object, held) = self.hold_object(&from.key).await?;
        if let Some(object) = object {
            if object.description.etag != from.etag {
                return Err(StoreError::PreconditionFailed(from.key.clone()));
            }
            let ObjectDescription { attributes, tags, .. } = object.description.clone();
            return Ok(CopySource { extents: object.extents.clone(), attributes, tags, held });
        }
        let object = self.bucket_ref(from)?;
        let meta = self.bucket.head(&object.key).await?;
        if meta.object.etag != object.etag && !object.etag.is_provisional() {
            return Err(StoreError::PreconditionFailed(from.key.clone()));
        }
        let tags = match self.bucket.tags(&object.key).await {
            Ok(tags) => tags,
            Err(StoreError::Unsupported(_)) => Tags::new(),
            Err(error) => return Err(error),
        };
        let extents = match meta.size_bytes {
            0 => Vec::new(),
            size => vec![Extent::Bucket(meta.object, 0..size)],
        };
        Ok(CopySource { extents, attributes: meta.attributes, tags, held })
    }

    async fn read_extents(&self, extents: Vec<Extent>) -> Result<BoxStream<'static, Result<Bytes>>> {
        let bucket = self.bucket.clone();
        let bodies = futures_util::stream::iter(extents).then(move |extent| {
            let bucket = bucket.clone();
            async move {
                match extent {
                    Extent::Log(segment, range) => {
                        let bytes = segment.read(&range).map_err(failed)?;
                        Ok(futures_util::stream::once(std::future::ready(Ok(bytes))).boxed())
                    }
                    Extent::Bucket(object, range) => {
                        let options = GetOptions {
                            range: Some(range),
                            if_match: Some(object.etag),
                            version: object.version,
                        };
                        bucket.get(&object.key, options).await.map(|object| object.body)
                    }
                }
            }
        });
        // The first read begins now, so that a missing object is an error of this call.
        let mut bodies = bodies.boxed();
        let first = match bodies.next().await {
            Some(first) => first?,
            None => return Ok(futures_util::stream::empty().boxed()),
        };
        Ok(first.chain(bodies.try_flatten()).boxed())
    }
}

#[async_trait::async_trait]
impl ObjectStore for Writeback {
    async fn get(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        if self.pending_object(key).is_none() {
            return self.get_from_bucket(key, options).await;
        }
        let (Some(object), held) = self.hold_object(key).await? else {
            // The object was uploaded in between.
            return self.get_from_bucket(key, options).await;
        };
        if options.version.is_some() {
            return Err(StoreError::NotFound(key.clone()));
        }
        if options.if_match.as_ref().is_some_and(|wanted| *wanted != object.description.etag) {
            return Err(StoreError::PreconditionFailed(key.clone()));
        }
        let size = object.size_bytes();
        let range = match options.range.clone() {
            Some(range) => byte_range::within(key, range, size)?,
            None => 0..size,
        };
        let body = match self.read_extents(slice_extents(&object.extents, &range)).await {
            // The pending change only has new attributes, and another client has replaced the object that they belong
            // to.
            Err(StoreError::PreconditionFailed(_) | StoreError::NotFound(_))
                if options.if_match.is_none() && object.reuses_only(key) =>
            {
                return self.get_from_bucket(key, options).await;
            }
            body => body?,
        };
        let body = body.inspect(move |_| {
            let _held_while_read = &held;
        });
        Ok(Object { meta: object.meta(key), body: body.boxed() })
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        match self.pending_object(key) {
            Some(object) => Ok(object?.meta(key)),
            None => {
                let meta = self.bucket.head(key).await?;
                Ok(ObjectMeta { object: self.with_issued_tag(meta.object), ..meta })
            }
        }
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        let condition = self.check_in_bucket(key, &options.precondition).await?;
        let description = self.describe(options.attributes, options.tags);
        let object = object_ref(key, &description);
        self.make_change(key, &condition, Some(NewObject::new(description, Vec::new())), body).await?;
        Ok(object)
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        let me = self.me.upgrade().ok_or_else(closed)?;
        Ok(Arc::new(LoggedUpload::new(me, key.clone(), attributes, tags)))
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        if from.key == *to && options.attributes.is_none() && options.tags.is_none() {
            return Err(StoreError::Invalid("a copy of an object onto itself changes nothing".into()));
        }
        let CopySource { extents, attributes, tags, held: _held } = self.copy_source(from).await?;
        let condition = self.check_in_bucket(to, &options.precondition).await?;
        let tags = options.tags.unwrap_or(tags);
        let description = self.describe(options.attributes.unwrap_or(attributes), tags);
        let object = object_ref(to, &description);
        self.make_change(to, &condition, Some(NewObject::new(description, extents)), Payload::default())
            .await?;
        Ok(object)
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        let condition = self.check_in_bucket(key, &precondition).await?;
        self.make_change(key, &condition, None, Payload::default()).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        self.list_merged(request).await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        match self.pending_object(key) {
            Some(object) => Ok(object?.description.tags.clone()),
            None => self.bucket.tags(key).await,
        }
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        // Tags are part of a pending object; there is no separate record for them.
        loop {
            if self.pending_object(key).is_none() {
                return self.bucket.set_tags(key, tags).await;
            }
            let (Some(object), _held) = self.hold_object(key).await? else { continue };
            let description = ObjectDescription { tags: tags.clone(), ..object.description.clone() };
            let same = Precondition::Matches(object.description.etag.clone());
            let condition = Condition { precondition: &same, read: None };
            let object = NewObject::new(description, object.extents.clone());
            match self.make_change(key, &condition, Some(object), Payload::default()).await {
                Err(StoreError::PreconditionFailed(_)) => {}
                changed => return changed,
            }
        }
    }

    async fn sync(&self) -> Result<()> {
        self.sync_log().await?;
        self.bucket.sync().await
    }
}

impl Drop for Writeback {
    fn drop(&mut self) {
        // Ends the upload task.
        self.drain_wake.notify_one();
    }
}

/// The source of a copy.
struct CopySource {
    extents: Vec<Extent>,
    attributes: Attributes,
    tags: Tags,
    /// Held until the copy is a change of its own.
    held: HeldSources,
}

/// Guard that protects objects of the bucket from being replaced by this store.
#[derive(Debug)]
struct HeldSources {
    writeback: Arc<Writeback>,
    keys: HashSet<ObjectKey>,
}

impl Drop for HeldSources {
    fn drop(&mut self) {
        self.writeback.pending().release_sources(&self.keys);
        self.writeback.drain_wake.notify_one();
    }
}

/// Guard that makes everything upload without delay.
struct UrgentDrain<'w>(&'w Writeback);

impl Drop for UrgentDrain<'_> {
    fn drop(&mut self) {
        self.0.urgent_callers.fetch_sub(1, Ordering::AcqRel);
    }
}

fn object_ref(key: &ObjectKey, description: &ObjectDescription) -> ObjectRef {
    ObjectRef::new(key.clone(), description.etag.clone())
}

fn closed() -> StoreError {
    StoreError::Unavailable("the write-back log is closed".into())
}

fn failed(error: io::Error) -> StoreError {
    StoreError::of_log("the write-back log", error)
}
