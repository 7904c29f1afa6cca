//! A sequential write beyond memory: parts go out as they fill.

use bytes::{Bytes, BytesMut};
use meta::{Ino, Inode};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Weak};
use store::{Attributes, Multipart, ObjectKey, ObjectRef, Payload, Precondition, StoreError, Timestamp};
use tokio::task::JoinSet;

use crate::Filesystem;
use crate::bucket::metadata::Described;
use crate::content::budget::{Budget, Held};
use crate::content::pin::Pin;
use crate::content::slab::{SLAB_BYTES, Slab, SlabPool};

/// S3 allows this many parts.
const PARTS_MAX: u32 = 10_000;
/// Part sizes double after so many parts, so that an object of 5 TiB still fits [`PARTS_MAX`].
const PARTS_PER_SIZE: u32 = 1_000;
/// Parts of one file under way at the same time, where there is memory.
const IN_FLIGHT_MAX: u64 = 3;

/// A part's number and its bytes, kept until the store has them.
type Part = (u32, Payload);

/// A part that was sent in an attempt, and what became of it.
type Sent = (u32, Part, Result<Option<ObjectRef>, StoreError>);

/// A multipart upload with the part being filled.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) base: Option<Arc<Pin>>,
    /// Mode, owner and group in the headers, which are sent before the first part.
    sent: (u16, u32, u32),
    /// All that was sent then.
    described: Described,
    upload: Upload,
    part_bytes: u64,
    parts_sent: u32,
    tail: Vec<Slab>,
    tail_bytes: u64,
    size: u64,
    in_flight: JoinSet<Sent>,
    /// Counts attempts to finish. Each answers for what it sent: what was under way before and fails is sent once more.
    attempt: u32,
    /// Parts that could not be sent; they are sent again.
    failed: Vec<Part>,
    /// The last part, where it was sent before it was full.
    short: Option<Payload>,
    /// The object, where it was completed but could not be moved to where the file is now.
    completed: Option<ObjectRef>,
    /// It may have been completed, and nobody heard of it: no part can be added then.
    may_be_complete: bool,
    /// A part went down with its task; nothing can complete the upload.
    is_broken: bool,
    in_flight_max: usize,
    /// Parts that are objects, by number.
    chunks: BTreeMap<u32, ObjectRef>,
    held: Held,
}

/// Where parts go.
#[derive(Debug, Clone)]
pub(crate) enum Upload {
    /// Into one object.
    Object { parts: Arc<dyn Multipart>, key: ObjectKey },
    /// Each is one.
    Chunks { fs: Weak<Filesystem>, ino: Ino, attributes: Arc<Attributes> },
}

impl Upload {
    /// Every part an object of the inode's.
    pub(crate) fn chunks(fs: Weak<Filesystem>, ino: Ino, attributes: Attributes) -> Self {
        Self::Chunks { fs, ino, attributes: Arc::new(attributes) }
    }

    async fn put(&self, number: u32, payload: Payload) -> Result<Option<ObjectRef>, StoreError> {
        match self {
            Self::Object { parts, .. } => parts.put_part(number, payload).await.map(|()| None),
            Self::Chunks { fs, ino, attributes } => {
                let fs = fs.upgrade().ok_or_else(cut_off)?;
                fs.store_payload(*ino, payload, attributes).await.map(Some)
            }
        }
    }
}

/// Memory for a stream: the part being filled and at least one under way.
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
            parts_sent: 0,
            tail: Vec::new(),
            tail_bytes: 0,
            size: 0,
            in_flight: JoinSet::new(),
            attempt: 0,
            failed: Vec::new(),
            short: None,
            completed: None,
            may_be_complete: false,
            is_broken: false,
            in_flight_max,
            chunks: BTreeMap::new(),
            held,
        }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size
    }

    /// The headers and tags sent at the beginning.
    pub(crate) fn described(&self) -> &Described {
        &self.described
    }

    /// Whether the headers sent at the beginning still say what the inode is: its owner and mode are the same, and
    /// its time is that of the last write, not one that was set.
    pub(crate) fn carries(&self, inode: &Inode, touched: Option<Timestamp>) -> bool {
        self.sent == (inode.mode, inode.uid, inode.gid) && touched.is_some()
    }

    /// Appends; waits while the parts under way are as many as there is memory for.
    pub(crate) async fn append(&mut self, pool: &SlabPool, mut data: &[u8]) -> Result<(), StoreError> {
        self.reopen(pool);
        while !data.is_empty() {
            let room = (self.part_bytes - self.tail_bytes).min(data.len() as u64) as usize;
            self.fill(pool, &data[..room]);
            data = &data[room..];
            if self.tail_bytes == self.part_bytes {
                // A full part is never short.
                drop(self.send().await?);
            }
        }
        Ok(())
    }

    /// Whether so many bytes more fit in the parts that an object can have. Later parts may become longer than assumed.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let sent = self.parts_sent - u32::from(self.short.is_some());
        let filled = self.tail_bytes + self.short.as_ref().map_or(0, Payload::len);
        let more = (filled + bytes).div_ceil(self.part_bytes);
        self.key().is_none() || u64::from(sent) + more <= u64::from(PARTS_MAX)
    }

    /// Appends without a wait; false, and nothing is done, if it would complete a part.
    pub(crate) fn append_now(&mut self, pool: &SlabPool, data: &[u8]) -> bool {
        self.reopen(pool);
        let fits =
            self.tail_bytes + (data.len() as u64) < self.part_bytes && self.has_room(data.len() as u64);
        if fits {
            self.fill(pool, data);
        }
        fits
    }

    /// A part that was sent before it was full, for a completion that failed, is filled up and sent again: only the
    /// last part of an upload may be short.
    fn reopen(&mut self, pool: &SlabPool) {
        let Some(payload) = self.short.take() else { return };
        // If it failed, it must not be sent after the full one.
        self.failed.retain(|(number, _)| *number != self.parts_sent);
        self.parts_sent -= 1;
        self.size -= payload.len();
        payload.pieces().iter().for_each(|piece| self.fill(pool, piece));
    }

    /// Appends to the part being filled, which has room.
    fn fill(&mut self, pool: &SlabPool, mut data: &[u8]) {
        self.tail_bytes += data.len() as u64;
        self.size += data.len() as u64;
        while !data.is_empty() {
            if self.tail.last().is_none_or(Slab::is_full) {
                self.tail.push(pool.take());
            }
            let Some(slab) = self.tail.last_mut() else { unreachable!("a slab was just pushed") };
            let taken = slab.fill(data);
            data = &data[taken..];
        }
    }

    /// The bytes of `range` if they are all still here.
    pub(crate) fn read(&self, range: Range<u64>) -> Option<Bytes> {
        let tail_start = self.size - self.tail_bytes;
        let range = range.start..range.end.min(self.size);
        if range.start < tail_start || range.start >= range.end {
            return (range.start >= self.size).then(Bytes::new);
        }
        let mut out = BytesMut::with_capacity((range.end - range.start) as usize);
        let mut at = (range.start - tail_start) as usize;
        let end = (range.end - tail_start) as usize;
        while at < end {
            let slab = self.tail[at / SLAB_BYTES].as_ref();
            let within = at % SLAB_BYTES;
            let take = (slab.len() - within).min(end - at);
            out.extend_from_slice(&slab[within..within + take]);
            at += take;
        }
        Some(out.freeze())
    }

    /// The object's key; the file may have been renamed since. `None`: every part is an object.
    pub(crate) fn key(&self) -> Option<&ObjectKey> {
        match &self.upload {
            Upload::Object { key, .. } => Some(key),
            Upload::Chunks { .. } => None,
        }
    }

    /// Length of a part that is not the last, where every part is an object.
    pub(crate) fn part_bytes(&self) -> u64 {
        self.part_bytes
    }

    /// Sends what is left and joins the parts. May be called again after a failed precondition.
    pub(crate) async fn finish(&mut self, precondition: Precondition) -> Result<ObjectRef, StoreError> {
        if let Some(object) = &self.completed {
            return Ok(object.clone());
        }
        self.send_all().await?;
        let Upload::Object { parts, .. } = &self.upload else {
            return Err(StoreError::Invalid("the parts are objects".into()));
        };
        let completed = parts.complete(precondition).await;
        self.may_be_complete = !matches!(completed, Err(StoreError::PreconditionFailed(_)));
        let object = completed?;
        self.completed = Some(object.clone());
        Ok(object)
    }

    /// Sends what is left and returns the parts that are objects, in order.
    pub(crate) async fn finish_chunks(&mut self) -> Result<Vec<ObjectRef>, StoreError> {
        self.send_all().await?;
        Ok(self.chunks.values().cloned().collect())
    }

    /// Whether bytes can be appended.
    pub(crate) fn is_open(&self) -> bool {
        !self.may_be_complete
    }

    async fn send_all(&mut self) -> Result<(), StoreError> {
        self.attempt += 1;
        if self.tail_bytes > 0 {
            self.short = self.send().await?;
        }
        self.send_failed();
        let mut outcome = Ok(());
        while !self.in_flight.is_empty() {
            outcome = outcome.and(self.landed().await);
        }
        outcome?;
        if self.is_broken { Err(cut_off()) } else { Ok(()) }
    }

    /// The object under the key it began with, once it is complete.
    pub(crate) fn completed(&self) -> Option<ObjectRef> {
        self.completed.clone()
    }

    /// Gives the upload up.
    pub(crate) async fn abort(mut self) {
        if self.completed.is_some() {
            return;
        }
        self.in_flight.shutdown().await;
        match &self.upload {
            Upload::Object { parts, .. } => {
                if let Err(error) = parts.abort().await {
                    tracing::warn!(%error, "an upload could not be aborted: its parts stay until the bucket's lifecycle removes them");
                }
            }
            Upload::Chunks { fs, .. } => {
                let Some(fs) = fs.upgrade() else { return };
                for object in self.chunks.into_values() {
                    fs.discard(object.key).await;
                }
            }
        }
    }

    /// Sends the part being filled; returns it if it was not full.
    async fn send(&mut self) -> Result<Option<Payload>, StoreError> {
        if self.parts_sent == PARTS_MAX && self.key().is_some() {
            return Err(StoreError::Invalid(format!(
                "the file is longer than {PARTS_MAX} parts: mount with a larger --part-size or --memory-limit"
            )));
        }
        self.send_failed();
        while self.in_flight.len() >= self.in_flight_max {
            self.landed().await?;
        }
        let payload: Payload = self.tail.drain(..).map(Slab::freeze).collect();
        let is_short = self.tail_bytes < self.part_bytes;
        self.tail_bytes = 0;
        self.parts_sent += 1;
        let short = is_short.then(|| payload.clone());
        self.send_part((self.parts_sent, payload));
        self.grow();
        Ok(short)
    }

    fn send_failed(&mut self) {
        for part in std::mem::take(&mut self.failed) {
            self.send_part(part);
        }
    }

    fn send_part(&mut self, (number, payload): Part) {
        let (upload, attempt) = (self.upload.clone(), self.attempt);
        self.in_flight.spawn(async move {
            let outcome = upload.put(number, payload.clone()).await;
            (attempt, (number, payload), outcome)
        });
    }

    /// Doubles the part size every [`PARTS_PER_SIZE`] parts, while there is memory for it.
    fn grow(&mut self) {
        let is_due = self.key().is_some() && self.parts_sent.is_multiple_of(PARTS_PER_SIZE);
        if is_due && self.held.try_grow(self.part_bytes * 4) {
            self.part_bytes *= 2;
            self.in_flight_max = (self.held.bytes() / self.part_bytes).saturating_sub(1).max(1) as usize;
        }
    }

    async fn landed(&mut self) -> Result<(), StoreError> {
        match self.in_flight.join_next().await {
            _ if self.is_broken => Err(cut_off()),
            None => Ok(()),
            Some(Ok((_, (number, _), Ok(object)))) => {
                // One that it replaces was never named: `tenon gc` finds it.
                self.chunks.extend(object.map(|object| (number, object)));
                Ok(())
            }
            Some(Ok((attempt, part, Err(_)))) if attempt < self.attempt => {
                self.send_part(part);
                Ok(())
            }
            Some(Ok((_, part, Err(error)))) => {
                self.failed.push(part);
                Err(error)
            }
            Some(Err(_)) => {
                self.is_broken = true;
                Err(cut_off())
            }
        }
    }
}

fn cut_off() -> StoreError {
    StoreError::Unavailable("a part of the upload was lost".into())
}
