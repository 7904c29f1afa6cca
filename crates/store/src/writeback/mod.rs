//! Write-back: a store whose changes are in a local log first and in the bucket later.
//!
//! A change is acknowledged when it is in the log: it then survives the end of the process, and after
//! [`ObjectStore::sync`] the loss of power. Reads and listings show the bucket with the changes that wait. They go up in the
//! background, the newest of each key only; opening the log again goes on where it ended.
//!
//! A condition is checked against a change of the key that waits, else when the change goes up: who meets somebody else's
//! object then finds its bytes under the key that [`WritebackOptions::lost`] gives, or where a [`Judge`] says.
//!
//! Invariants: what was acknowledged is in the log until it is in the bucket; the bucket never has what the log could
//! lose with the power, as it would then be taken for somebody else's; nothing is replaced in the bucket
//! that a waiting object is made of; the log is no longer than its limit and one change.

mod asked;
mod drain;
#[cfg(feature = "fuzz")]
pub(crate) mod fuzz;
mod listing;
mod log;
mod notes;
mod overtaken;
mod pending;
mod record;
mod replay;
mod room;
mod upload;

use crate::{
    Attributes, Clock, CopyOptions, ETag, Entropy, GetOptions, ListPage, ListRequest, Multipart, Object,
    ObjectKey, ObjectMeta, ObjectRef, ObjectStore, Payload, Precondition, PutOptions, Result, StoreError,
    Tags, aliases::Aliases, blocking, byte_range,
};
use asked::{Asked, Look, check};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use log::Log;
use notes::Notes;
use overtaken::Judged;
pub use overtaken::{Judge, Outcome, Overtaken, Way};
use pending::{Change, Pending, Piece, Waiting, slice};
use record::{Described, PieceAt, Record};
use replay::Replay;
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use upload::WaitingUpload;

/// Longer bodies are appended before the record that describes them, in bytes.
const BODY_BYTES_MAX: u64 = 64 << 10;

/// How a log behaves.
#[derive(Clone)]
pub struct WritebackOptions {
    /// Who changes something waits while the log is longer, in bytes.
    pub limit_bytes: u64,
    /// The same for changes that wait, which take some hundred bytes of memory each.
    pub limit_changes: usize,
    /// Who waits for room gives up when nothing went up for so long.
    pub patience: Duration,
    /// A change goes up after so long, unless the log is half full: much is replaced or deleted soon.
    pub delay: Duration,
    /// A condition on a key of which no change waits is asked of the bucket at once, by one more request.
    pub checks_at_once: bool,
    /// Keys that other clients change too. Who changes one whatever it is changes what it is then, for one more request: what
    /// they make of it before the change goes up is not lost.
    pub shared: SharedKeys,
    /// No key is used again after it was deleted, nor for other bytes: what never went up need not be deleted.
    pub keys_are_used_once: bool,
    /// Where our bytes go if somebody else changed the key in the bucket.
    pub lost: LostKey,
}

/// Gives the key under which bytes are kept that lost to somebody else's, from theirs and a random number.
pub type LostKey = Arc<dyn Fn(&ObjectKey, u64) -> ObjectKey + Send + Sync>;

/// Says of a key whether other clients change it.
pub type SharedKeys = Arc<dyn Fn(&ObjectKey) -> bool + Send + Sync>;

impl std::fmt::Debug for WritebackOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WritebackOptions").field("limit_bytes", &self.limit_bytes).finish_non_exhaustive()
    }
}

/// What waits to go up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Changes.
    pub changes: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// A store in front of another.
#[derive(Debug)]
pub struct Writeback {
    me: Weak<Self>,
    bucket: Arc<dyn ObjectStore>,
    log: Log,
    pending: Mutex<Pending>,
    notes: Notes,
    aliases: Mutex<Aliases>,
    next_change: AtomicU64,
    clock: Arc<dyn Clock>,
    entropy: Arc<Entropy>,
    options: WritebackOptions,
    /// Something waits that did not before, or somebody wants everything up.
    woken: Arc<Notify>,
    /// A change went up, or its attempt ended.
    lighter: Notify,
    /// Attempts under way, which hold what they send.
    sending: AtomicU64,
    /// How many changes went up.
    went_up: AtomicU64,
    /// How many want everything up now.
    hurried: AtomicU64,
    judged: Mutex<Judged>,
}

impl Writeback {
    /// Opens the log in `dir` in front of a bucket; `WouldBlock` if another process has it open. What it holds is seen at once and goes up once a runtime runs.
    pub fn open(
        dir: &Path,
        bucket: Arc<dyn ObjectStore>,
        options: WritebackOptions,
        clock: Arc<dyn Clock>,
        entropy: Arc<Entropy>,
    ) -> io::Result<Arc<Self>> {
        let mut replay = Replay::default();
        let log = Log::open(dir, |found| replay.one(found))?;
        let (pending, last_change, notes) = replay.end()?;
        log.reclaim()?;
        let writeback = Arc::new_cyclic(|me| Self {
            me: me.clone(),
            bucket,
            log,
            pending: Mutex::new(pending),
            notes: Notes::of(notes),
            aliases: Mutex::default(),
            next_change: AtomicU64::new(last_change + 1),
            clock,
            entropy,
            options,
            woken: Arc::default(),
            lighter: Notify::new(),
            sending: AtomicU64::new(0),
            went_up: AtomicU64::new(0),
            hurried: AtomicU64::new(0),
            judged: Mutex::default(),
        });
        writeback.start();
        Ok(writeback)
    }

    /// How many changes a log in `dir`, which may be missing, holds that are not in the bucket, notes included; `WouldBlock` if a process
    /// has it open.
    pub fn waiting_in(dir: &Path) -> io::Result<usize> {
        if !dir.is_dir() {
            return Ok(0);
        }
        let _lock = log::lock(dir)?;
        let mut replay = Replay::default();
        log::scan(dir, |found| replay.one(found))?;
        let (pending, _, notes) = replay.end()?;
        Ok(pending.len() + notes.len())
    }

    /// What waits.
    pub fn backlog(&self) -> Backlog {
        let pending = self.pending();
        Backlog { changes: pending.len(), bytes: pending.bytes() }
    }

    /// The numbers of the log's files, and how many bytes of each survive the loss of power, as far as this process
    /// knows: for simulators, which take the rest away.
    pub fn synced(&self) -> Vec<(u64, u64)> {
        self.log.synced()
    }

    /// Returns when nothing waits.
    pub async fn drained(&self) {
        self.hurried.fetch_add(1, Ordering::AcqRel);
        let _hurry = Hurry(self);
        self.woken.notify_one();
        loop {
            let lighter = self.lighter.notified();
            if self.pending().len() == 0 {
                return;
            }
            lighter.await;
        }
    }

    /// What was appended so far survives the loss of power.
    async fn sync_log(&self) -> Result<()> {
        let me = self.me.upgrade().ok_or_else(closed)?;
        blocking(move || me.log.sync()).await.map_err(failed)
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn aliases(&self) -> MutexGuard<'_, Aliases> {
        self.aliases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends bytes of an object that is not described yet.
    async fn append_bytes(&self, body: &Payload) -> Result<Vec<Piece>> {
        if body.is_empty() {
            return Ok(Vec::new());
        }
        let mut wait = self.begin_wait();
        loop {
            let lighter = self.lighter.notified();
            match self.log.append(&Record::Bytes, body).map_err(failed) {
                Err(StoreError::Full(full)) => self.wait_for_disk(full, lighter, &mut wait).await?,
                appended => return appended.map(|(segment, range)| vec![Piece::Here(segment, range)]),
            }
        }
    }

    /// The one place where a change is made. The body comes after the pieces given.
    async fn change(
        &self,
        key: &ObjectKey,
        asked: &Asked<'_>,
        object: Option<(Described, Vec<Piece>)>,
        mut body: Payload,
    ) -> Result<()> {
        self.admit(body.len()).await?;
        let mut object = object;
        if let Some((_, pieces)) = &mut object
            && body.len() > BODY_BYTES_MAX
        {
            // Not under the lock.
            pieces.extend(self.append_bytes(&body).await?);
            body = Payload::default();
        }
        let mut wait = self.begin_wait();
        loop {
            let lighter = self.lighter.notified();
            match self.try_change(key, asked, object.as_ref(), &body) {
                Err(StoreError::Full(full)) => self.wait_for_disk(full, lighter, &mut wait).await?,
                changed => return changed,
            }
        }
    }

    /// The log has changes of a key in the order in which they are seen.
    fn try_change(
        &self,
        key: &ObjectKey,
        asked: &Asked<'_>,
        object: Option<&(Described, Vec<Piece>)>,
        body: &Payload,
    ) -> Result<()> {
        let mut pending = self.pending();
        check(key, pending.seen(key), asked.precondition)?;
        let never_there = pending.never_there(key, self.options.keys_are_used_once);
        if let (None, Some(change)) = (object, never_there) {
            let done = Record::Done { change, key: key.clone(), etag: None };
            self.log.append(&done, &Payload::default()).map_err(failed)?;
            pending.cancel(key);
            return Ok(());
        }
        let base = self.base(&pending, key, asked);
        let change = self.next_change.fetch_add(1, Ordering::Relaxed);
        let record = match object {
            None => Record::Delete { change, key: key.clone(), base: base.clone() },
            Some((described, pieces)) => Record::Put {
                change,
                key: key.clone(),
                base: base.clone(),
                object: described.clone(),
                pieces: places(pieces, body),
            },
        };
        let (segment, range) = self.log.append(&record, body).map_err(failed)?;
        let end = range.end;
        let waiting = object.map(|(described, pieces)| {
            let mut pieces = pieces.clone();
            if !range.is_empty() {
                pieces.push(Piece::Here(segment.clone(), range));
            }
            Arc::new(Waiting { described: described.clone(), pieces })
        });
        let change = Change::new(change, waiting, base, self.clock.now(), (segment, end));
        let was_idle = pending.len() == 0;
        pending.set(key.clone(), change);
        // Who sends changes up knows of the oldest, and looks again when that is due.
        if was_idle || self.is_urgent(pending.len()) {
            self.woken.notify_one();
        }
        Ok(())
    }

    /// Whether changes go up without delay, where so many wait.
    fn is_urgent(&self, waiting: usize) -> bool {
        self.hurried.load(Ordering::Acquire) > 0
            || self.log.bytes() > self.options.limit_bytes / 2
            || waiting > self.options.limit_changes / 2
    }

    /// Reads an object that does not wait.
    async fn get_there(&self, key: &ObjectKey, options: GetOptions) -> Result<Object> {
        let if_match = match options.if_match {
            Some(etag) => Some(self.object_there(&ObjectRef::new(key.clone(), etag))?.etag),
            None => None,
        };
        // A key that is used once has no other bytes.
        let if_match = if_match.filter(|etag| !etag.is_provisional());
        let mut object = self.bucket.get(key, GetOptions { if_match, ..options }).await?;
        object.meta.object = self.as_given(object.meta.object);
        Ok(object)
    }

    /// A condition in the bucket's words.
    fn there(&self, key: &ObjectKey, asked: &Precondition) -> Precondition {
        self.aliases().condition_there(key, asked)
    }

    /// An object of the bucket with the tag that was given for it here.
    fn as_given(&self, object: ObjectRef) -> ObjectRef {
        self.aliases().as_given(object)
    }

    /// An object as the bucket knows it. One that was given so long ago that its tag is forgotten may be another.
    fn object_there(&self, object: &ObjectRef) -> Result<ObjectRef> {
        let etag = self.aliases().there(&object.key, &object.etag);
        if etag.is_provisional() && !self.options.keys_are_used_once {
            return Err(StoreError::PreconditionFailed(object.key.clone()));
        }
        Ok(ObjectRef { etag, ..object.clone() })
    }

    fn describe(&self, attributes: Attributes, tags: Tags) -> Described {
        let etag = ETag::provisional(self.entropy.next_u64());
        Described { etag, stored_at: self.clock.now(), attributes, tags }
    }

    fn waiting(&self, key: &ObjectKey) -> Option<Result<Arc<Waiting>>> {
        let pending = self.pending();
        let change = pending.get(key)?;
        Some(change.object.clone().ok_or_else(|| StoreError::NotFound(key.clone())))
    }

    /// The object under a key, if it waits. What it is made of, or else the object in the bucket, stays there as it is
    /// while this is held.
    async fn hold(&self, key: &ObjectKey) -> Result<(Option<Arc<Waiting>>, Held)> {
        let writeback = self.me.upgrade().ok_or_else(closed)?;
        self.settle_tried(key).await?;
        loop {
            let lighter = self.lighter.notified();
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
                if pending.hold(&keys) {
                    return Ok((object, Held { writeback, keys }));
                }
            }
            lighter.await;
        }
    }

    /// The pieces of exactly these bytes, and what is known of the object they are from.
    async fn source(&self, from: &ObjectRef) -> Result<Source> {
        let (waiting, held) = self.hold(&from.key).await?;
        if let Some(waiting) = waiting {
            if waiting.described.etag != from.etag {
                return Err(StoreError::PreconditionFailed(from.key.clone()));
            }
            let Described { attributes, tags, .. } = waiting.described.clone();
            return Ok(Source { pieces: waiting.pieces.clone(), attributes, tags, held });
        }
        let object = self.object_there(from)?;
        let meta = self.bucket.head(&object.key).await?;
        if meta.object.etag != object.etag && !object.etag.is_provisional() {
            return Err(StoreError::PreconditionFailed(from.key.clone()));
        }
        let tags = match self.bucket.tags(&object.key).await {
            Ok(tags) => tags,
            Err(StoreError::Unsupported(_)) => Tags::new(),
            Err(error) => return Err(error),
        };
        let pieces = match meta.size_bytes {
            0 => Vec::new(),
            size => vec![Piece::There(meta.object, 0..size)],
        };
        Ok(Source { pieces, attributes: meta.attributes, tags, held })
    }

    async fn read(&self, pieces: Vec<Piece>) -> Result<BoxStream<'static, Result<Bytes>>> {
        let bucket = self.bucket.clone();
        let bodies = futures_util::stream::iter(pieces).then(move |piece| {
            let bucket = bucket.clone();
            async move {
                match piece {
                    Piece::Here(segment, range) => {
                        let bytes = segment.read(&range).map_err(failed)?;
                        Ok(futures_util::stream::once(std::future::ready(Ok(bytes))).boxed())
                    }
                    Piece::There(object, range) => {
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
        // The first is begun now, so that an object that is gone is an error of the call.
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
        if self.waiting(key).is_none() {
            return self.get_there(key, options).await;
        }
        let (Some(waiting), held) = self.hold(key).await? else {
            // It went up in between.
            return self.get_there(key, options).await;
        };
        if options.version.is_some() {
            return Err(StoreError::NotFound(key.clone()));
        }
        if options.if_match.is_some_and(|wanted| wanted != waiting.described.etag) {
            return Err(StoreError::PreconditionFailed(key.clone()));
        }
        let size = waiting.size_bytes();
        let range = match options.range {
            Some(range) => byte_range::within(key, range, size)?,
            None => 0..size,
        };
        let body = self.read(slice(&waiting.pieces, &range)).await?;
        let body = body.inspect(move |_| {
            let _until_it_is_read = &held;
        });
        Ok(Object { meta: waiting.meta(key), body: body.boxed() })
    }

    async fn head(&self, key: &ObjectKey) -> Result<ObjectMeta> {
        match self.waiting(key) {
            Some(waiting) => Ok(waiting?.meta(key)),
            None => {
                let meta = self.bucket.head(key).await?;
                Ok(ObjectMeta { object: self.as_given(meta.object), ..meta })
            }
        }
    }

    async fn put(&self, key: &ObjectKey, body: Payload, options: PutOptions) -> Result<ObjectRef> {
        let asked = self.check_there(key, &options.precondition).await?;
        let described = self.describe(options.attributes, options.tags);
        let object = reference(key, &described);
        self.change(key, &asked, Some((described, Vec::new())), body).await?;
        Ok(object)
    }

    async fn multipart(
        &self,
        key: &ObjectKey,
        attributes: Attributes,
        tags: Tags,
    ) -> Result<Arc<dyn Multipart>> {
        let me = self.me.upgrade().ok_or_else(closed)?;
        Ok(Arc::new(WaitingUpload::new(me, key.clone(), attributes, tags)))
    }

    async fn copy(&self, from: &ObjectRef, to: &ObjectKey, options: CopyOptions) -> Result<ObjectRef> {
        if from.key == *to && options.attributes.is_none() {
            return Err(StoreError::Invalid("a copy of an object onto itself changes nothing".into()));
        }
        let Source { pieces, attributes, tags, held: _held } = self.source(from).await?;
        let asked = self.check_there(to, &options.precondition).await?;
        let described = self.describe(options.attributes.unwrap_or(attributes), tags);
        let object = reference(to, &described);
        self.change(to, &asked, Some((described, pieces)), Payload::default()).await?;
        Ok(object)
    }

    async fn delete(&self, key: &ObjectKey, precondition: Precondition) -> Result<()> {
        let asked = self.check_there(key, &precondition).await?;
        self.change(key, &asked, None, Payload::default()).await
    }

    async fn list(&self, request: ListRequest) -> Result<ListPage> {
        self.list_merged(request).await
    }

    async fn tags(&self, key: &ObjectKey) -> Result<Tags> {
        match self.waiting(key) {
            Some(waiting) => Ok(waiting?.described.tags.clone()),
            None => self.bucket.tags(key).await,
        }
    }

    async fn set_tags(&self, key: &ObjectKey, tags: Tags) -> Result<()> {
        // Of what waits they are part; there is no other change that only concerns them.
        loop {
            if self.waiting(key).is_none() {
                return self.bucket.set_tags(key, tags).await;
            }
            let (Some(waiting), _held) = self.hold(key).await? else { continue };
            let described = Described { tags: tags.clone(), ..waiting.described.clone() };
            let same = Precondition::Matches(waiting.described.etag.clone());
            let asked = Asked { precondition: &same, look: None };
            match self
                .change(key, &asked, Some((described, waiting.pieces.clone())), Payload::default())
                .await
            {
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
        // Who sends changes up ends.
        self.woken.notify_one();
    }
}

/// Bytes to make an object of.
struct Source {
    pieces: Vec<Piece>,
    attributes: Attributes,
    tags: Tags,
    /// Until the object is a change of its own.
    held: Held,
}

/// Objects of the bucket that stay as they are until this is dropped.
#[derive(Debug)]
struct Held {
    writeback: Arc<Writeback>,
    keys: HashSet<ObjectKey>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.writeback.pending().release(&self.keys);
        self.writeback.woken.notify_one();
    }
}

/// Everything goes up without delay until this is dropped.
struct Hurry<'w>(&'w Writeback);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.hurried.fetch_sub(1, Ordering::AcqRel);
    }
}

fn reference(key: &ObjectKey, described: &Described) -> ObjectRef {
    ObjectRef::new(key.clone(), described.etag.clone())
}

/// Where the log says that pieces are, and the body after them.
fn places(pieces: &[Piece], body: &Payload) -> Vec<PieceAt> {
    let place = |piece: &Piece| match piece {
        Piece::Here(segment, range) => PieceAt::Here { segment: segment.number, range: range.clone() },
        Piece::There(object, range) => PieceAt::There { object: object.clone(), range: range.clone() },
    };
    let body = (!body.is_empty()).then_some(PieceAt::Body);
    pieces.iter().map(place).chain(body).collect()
}

fn closed() -> StoreError {
    StoreError::Unavailable("the write-back log is closed".into())
}

fn failed(error: io::Error) -> StoreError {
    StoreError::of_log("the write-back log", error)
}
