//! A sequential write that exceeds memory: parts are uploaded as they fill.

use bytes::{Bytes, BytesMut};
use meta::{Ino, Inode};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Weak};
use store::{Attributes, Multipart, ObjectKey, ObjectRef, Payload, Precondition, StoreError, Timestamp};
use tokio::task::JoinSet;

use crate::bucket::metadata::Described;
use crate::content::budget::{Budget, Held};
use crate::content::pin::Pin;
use crate::content::slab::{SLAB_BYTES, Slab, SlabPool};
use crate::mount::Mount;

/// S3's maximum number of parts.
const PARTS_MAX: u32 = 10_000;
/// Number of parts after which the part size doubles, so that an object of 5 TiB fits into [`PARTS_MAX`].
const PARTS_PER_SIZE: u32 = 1_000;
/// Maximum number of parts of one file in flight; fewer if memory is short.
const IN_FLIGHT_MAX: u64 = 3;

/// A part's number and its bytes, kept until the store has them.
type Part = (u32, Payload);

/// The attempt that sent a part, the part, and the outcome.
type Sent = (u32, Part, Result<Option<ObjectRef>, StoreError>);

/// A multipart upload and the part being filled.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The content that the stream replaces.
    pub(crate) base: Option<Arc<Pin>>,
    /// Mode, owner and group of the file when the headers were sent, before the first part.
    sent: (u16, u32, u32),
    /// Headers and tags sent at the beginning.
    described: Described,
    upload: Upload,
    /// Length of a full part, which grows with the number of parts.
    part_bytes: u64,
    /// Length of the file so far.
    size: u64,
    tail: Tail,
    sending: Sending,
    /// How far the upload has ended.
    ending: Ending,
    /// Parts that are objects of their own, by part number.
    chunks: BTreeMap<u32, ObjectRef>,
    /// Memory for the part being filled and those in flight.
    held: Held,
}

/// The part being filled.
#[derive(Debug, Default)]
struct Tail {
    slabs: Vec<Slab>,
    /// Number of bytes in the slabs.
    bytes: u64,
}

/// The parts that were sent, and their tasks.
#[derive(Debug)]
struct Sending {
    tasks: JoinSet<Sent>,
    /// Maximum parts in flight.
    tasks_max: usize,
    /// Number of parts sent.
    parts: u32,
    /// Number of attempts to finish. An attempt reports only failures of parts that it sent; older parts that fail are sent
    /// again.
    attempt: u32,
    /// Parts that could not be sent and will be sent again.
    failed: Vec<Part>,
}

/// How far the upload has ended.
#[derive(Debug, Default)]
struct Ending {
    /// The last part, if it was sent before it was full.
    short: Option<Payload>,
    /// The completed object, under the key that the upload began with.
    completed: Option<ObjectRef>,
    /// Id of the conflict that says where the foreign object is that the completed one has replaced, until it is restored.
    replaced: Option<String>,
    /// Whether the upload is completed, or may be although the answer was lost: no part can be added then.
    may_be_complete: bool,
    /// Whether a part was lost with its task, so that the upload cannot be completed.
    is_broken: bool,
}

/// Destination of parts.
#[derive(Debug, Clone)]
pub(crate) enum Upload {
    /// Parts of one object.
    Object { parts: Arc<dyn Multipart>, key: ObjectKey },
    /// One object per part.
    Chunks { mount: Weak<Mount>, ino: Ino, attributes: Arc<Attributes> },
}

impl Upload {
    /// Creates an upload that stores every part as an object of the inode.
    pub(crate) fn chunks(mount: Weak<Mount>, ino: Ino, attributes: Attributes) -> Self {
        Self::Chunks { mount, ino, attributes: Arc::new(attributes) }
    }

    /// Stores a part. Returns its object if every part is one.
    async fn put(&self, number: u32, payload: Payload) -> Result<Option<ObjectRef>, StoreError> {
        match self {
            Self::Object { parts, .. } => parts.put_part(number, payload).await.map(|()| None),
            Self::Chunks { mount, ino, attributes } => {
                let mount = mount.upgrade().ok_or_else(part_lost)?;
                // Files in chunks are named by inode, in a volume of one bucket.
                let key = mount.content_key(None, *ino)?;
                mount.store_payload(&key, payload, attributes).await.map(Some)
            }
        }
    }
}

/// Reserves memory for a stream: the part being filled and at least one in flight, if possible more. `None` if there is
/// too little.
pub(crate) fn reserve(budget: &Budget, part_bytes: u64) -> Option<Held> {
    (1..=IN_FLIGHT_MAX).rev().find_map(|in_flight| budget.try_hold(part_bytes * (in_flight + 1)))
}

impl Stream {
    pub(crate) fn begin(
        upload: Upload,
        (inode, described): (&Inode, Described),
        base: Option<Arc<Pin>>,
        part_bytes: u64,
        held: Held,
    ) -> Self {
        let in_flight_max = (held.bytes() / part_bytes).saturating_sub(1).max(1) as usize;
        Self {
            base,
            sent: (inode.mode, inode.uid, inode.gid),
            described,
            upload,
            part_bytes,
            size: 0,
            tail: Tail::default(),
            sending: Sending {
                tasks: JoinSet::new(),
                tasks_max: in_flight_max,
                parts: 0,
                attempt: 0,
                failed: Vec::new(),
            },
            ending: Ending::default(),
            chunks: BTreeMap::new(),
            held,
        }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size
    }

    /// Returns the headers and tags sent at the beginning.
    pub(crate) fn described(&self) -> &Described {
        &self.described
    }

    /// Returns whether the headers sent at the beginning still match the inode: same owner and mode, and no time set by a
    /// program since the last write.
    pub(crate) fn matches_inode(&self, inode: &Inode, touched: Option<Timestamp>) -> bool {
        self.sent == (inode.mode, inode.uid, inode.gid) && touched.is_some()
    }

    /// Appends bytes, and sends each part that becomes full. Waits while as many parts are in flight as there is memory
    /// for.
    pub(crate) async fn append(&mut self, pool: &SlabPool, mut data: &[u8]) -> Result<(), StoreError> {
        self.reopen(pool);
        while !data.is_empty() {
            let room = (self.part_bytes - self.tail.bytes).min(data.len() as u64) as usize;
            self.fill(pool, &data[..room]);
            data = &data[room..];
            if self.tail.bytes == self.part_bytes {
                // Only a short part has to be kept by the caller, and a full part is not short.
                drop(self.send().await?);
            }
        }
        Ok(())
    }

    /// Returns whether `bytes` more fit into the allowed number of parts. An underestimate, because later parts may be longer.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let sent = self.sending.parts - u32::from(self.ending.short.is_some());
        let filled = self.tail.bytes + self.ending.short.as_ref().map_or(0, Payload::len);
        let more = (filled + bytes).div_ceil(self.part_bytes);
        self.key().is_none() || u64::from(sent) + more <= u64::from(PARTS_MAX)
    }

    /// Appends without waiting; returns false and does nothing if that would complete a part.
    pub(crate) fn append_now(&mut self, pool: &SlabPool, data: &[u8]) -> bool {
        self.reopen(pool);
        let fits =
            self.tail.bytes + (data.len() as u64) < self.part_bytes && self.has_room(data.len() as u64);
        if fits {
            self.fill(pool, data);
        }
        fits
    }

    /// Reopens a part that was sent short for a completion that failed: it is filled up and sent again, because only the last
    /// part of an upload may be short.
    fn reopen(&mut self, pool: &SlabPool) {
        let Some(payload) = self.ending.short.take() else { return };
        // A failed short part must not be sent after the full one.
        self.sending.failed.retain(|(number, _)| *number != self.sending.parts);
        self.sending.parts -= 1;
        self.size -= payload.len();
        payload.pieces().iter().for_each(|piece| self.fill(pool, piece));
    }

    /// Appends to the part being filled, which must have room.
    fn fill(&mut self, pool: &SlabPool, mut data: &[u8]) {
        self.tail.bytes += data.len() as u64;
        self.size += data.len() as u64;
        while !data.is_empty() {
            if self.tail.slabs.last().is_none_or(Slab::is_full) {
                self.tail.slabs.push(pool.take());
            }
            let Some(slab) = self.tail.slabs.last_mut() else {
                unreachable!("a slab with room was just pushed")
            };
            let taken = slab.fill(data);
            data = &data[taken..];
        }
    }

    /// Returns the bytes of `range` if all of them are still in memory.
    pub(crate) fn read(&self, range: Range<u64>) -> Option<Bytes> {
        let tail_start = self.size - self.tail.bytes;
        let range = range.start..range.end.min(self.size);
        if range.start < tail_start || range.start >= range.end {
            return (range.start >= self.size).then(Bytes::new);
        }
        let mut out = BytesMut::with_capacity((range.end - range.start) as usize);
        let mut at = (range.start - tail_start) as usize;
        let end = (range.end - tail_start) as usize;
        while at < end {
            let slab = self.tail.slabs[at / SLAB_BYTES].as_ref();
            let within = at % SLAB_BYTES;
            let take = (slab.len() - within).min(end - at);
            out.extend_from_slice(&slab[within..within + take]);
            at += take;
        }
        Some(out.freeze())
    }

    /// Returns the key that the upload began with, which may differ from the file's after a rename; `None` if every part is an
    /// object.
    pub(crate) fn key(&self) -> Option<&ObjectKey> {
        match &self.upload {
            Upload::Object { key, .. } => Some(key),
            Upload::Chunks { .. } => None,
        }
    }

    /// Returns the length of all parts but the last, if every part is an object.
    pub(crate) fn part_bytes(&self) -> u64 {
        self.part_bytes
    }

    /// Sends the remaining bytes and completes the upload. May be called again after an error. Returns the object,
    /// under the key that the upload began with.
    pub(crate) async fn finish(&mut self, precondition: Precondition) -> Result<ObjectRef, StoreError> {
        if let Some(object) = &self.ending.completed {
            return Ok(object.clone());
        }
        self.send_all().await?;
        let Upload::Object { parts, .. } = &self.upload else {
            return Err(StoreError::Invalid("the parts of this stream are objects of their own".into()));
        };
        // Also if this call is dropped.
        self.ending.may_be_complete = true;
        let completed = parts.complete(precondition).await;
        self.ending.may_be_complete = !matches!(completed, Err(StoreError::PreconditionFailed(_)));
        let object = completed?;
        self.ending.completed = Some(object.clone());
        Ok(object)
    }

    /// Sends the remaining bytes and returns the parts, which are objects, in order.
    pub(crate) async fn finish_chunks(&mut self) -> Result<Vec<ObjectRef>, StoreError> {
        self.send_all().await?;
        Ok(self.chunks.values().cloned().collect())
    }

    /// Returns whether bytes can be appended.
    pub(crate) fn is_open(&self) -> bool {
        !self.ending.may_be_complete
    }

    /// Sends the remaining bytes and the parts that failed, and waits until all parts are stored.
    async fn send_all(&mut self) -> Result<(), StoreError> {
        self.sending.attempt += 1;
        if self.tail.bytes > 0 {
            self.ending.short = self.send().await?;
        }
        self.send_failed();
        let mut outcome = Ok(());
        while !self.sending.tasks.is_empty() {
            outcome = outcome.and(self.wait_for_part().await);
        }
        outcome?;
        if self.ending.is_broken { Err(part_lost()) } else { Ok(()) }
    }

    /// Returns the completed object, under the key that the upload began with; `None` if the upload is not known to be
    /// completed.
    pub(crate) fn completed(&self) -> Option<ObjectRef> {
        self.ending.completed.clone()
    }

    /// Notes that the completed object has replaced a foreign one, which is to be restored from where a conflict says.
    pub(crate) fn set_replaced(&mut self, conflict: &str) {
        self.ending.replaced = Some(conflict.to_owned());
    }

    /// Returns the conflict that `set_replaced` noted.
    pub(crate) fn replaced(&self) -> Option<&str> {
        self.ending.replaced.as_deref()
    }

    /// Aborts the upload, unless it is completed. If every part is an object, returns those that were stored, for the
    /// caller to discard.
    pub(crate) async fn abort(mut self) -> Vec<ObjectKey> {
        if self.ending.completed.is_some() {
            return Vec::new();
        }
        self.sending.tasks.shutdown().await;
        if let Upload::Object { parts, .. } = &self.upload
            && let Err(error) = parts.abort().await
        {
            tracing::warn!(%error, "an upload could not be aborted: its parts may stay until a lifecycle rule of the bucket removes them");
        }
        self.chunks.into_values().map(|object| object.key).collect()
    }

    /// Sends the part being filled; returns its bytes if it was not full.
    async fn send(&mut self) -> Result<Option<Payload>, StoreError> {
        if self.sending.parts == PARTS_MAX && self.key().is_some() {
            return Err(StoreError::Invalid(format!(
                "the file is longer than {PARTS_MAX} parts: mount with a larger --part-size or --memory-limit"
            )));
        }
        self.send_failed();
        while self.sending.tasks.len() >= self.sending.tasks_max {
            self.wait_for_part().await?;
        }
        let payload: Payload = self.tail.slabs.drain(..).map(Slab::freeze).collect();
        let is_short = self.tail.bytes < self.part_bytes;
        self.tail.bytes = 0;
        self.sending.parts += 1;
        let short = is_short.then(|| payload.clone());
        self.send_part((self.sending.parts, payload));
        self.grow();
        Ok(short)
    }

    fn send_failed(&mut self) {
        for part in std::mem::take(&mut self.sending.failed) {
            self.send_part(part);
        }
    }

    fn send_part(&mut self, (number, payload): Part) {
        let (upload, attempt) = (self.upload.clone(), self.sending.attempt);
        let work = async move {
            let outcome = upload.put(number, payload.clone()).await;
            (attempt, (number, payload), outcome)
        };
        self.sending.tasks.spawn(store::work_for(store::current_cause(), work));
    }

    /// Doubles the part size after every [`PARTS_PER_SIZE`] parts, while there is memory.
    fn grow(&mut self) {
        let is_due = self.key().is_some() && self.sending.parts.is_multiple_of(PARTS_PER_SIZE);
        if is_due && self.held.try_grow(self.part_bytes * 4) {
            self.part_bytes *= 2;
            self.sending.tasks_max = (self.held.bytes() / self.part_bytes).saturating_sub(1).max(1) as usize;
        }
    }

    /// Waits for one of the parts in flight. A part that failed is kept, to be sent again.
    async fn wait_for_part(&mut self) -> Result<(), StoreError> {
        match self.sending.tasks.join_next().await {
            _ if self.ending.is_broken => Err(part_lost()),
            None => Ok(()),
            Some(Ok((_, (number, _), Ok(object)))) => {
                // A chunk that is replaced here was never named: `tenon gc` finds it.
                self.chunks.extend(object.map(|object| (number, object)));
                Ok(())
            }
            Some(Ok((attempt, part, Err(_)))) if attempt < self.sending.attempt => {
                self.send_part(part);
                Ok(())
            }
            Some(Ok((_, part, Err(error)))) => {
                self.sending.failed.push(part);
                Err(error)
            }
            Some(Err(_)) => {
                self.ending.is_broken = true;
                Err(part_lost())
            }
        }
    }
}

/// Returns the error for a part whose bytes are gone, so that the upload cannot be completed.
fn part_lost() -> StoreError {
    StoreError::Unavailable("a part of the upload was lost".into())
}
