//! The exporter: keeps the backup of one engine current, pass by pass.
//!
//! A pass has two steps. [`Exporter::begin`] reads the op log and, when one is due, takes a snapshot. Then the caller waits until
//! the bucket has the content that these refer to, and [`Exporter::export`] stores them. A pass that fails is repeated by the next
//! one: nothing of it is remembered as stored.
//!
//! The engine keeps the log for the consumer `backup`. Its cursor is moved after a segment is stored. If it equals the end of the
//! backup when a mount begins, then the mount continues the epoch; otherwise the engine's history may differ from the backup's,
//! and a new epoch begins with a snapshot. Until that snapshot is stored, the log is kept for another consumer: the cursor of an epoch
//! that has nothing in the bucket must not be taken for that of an earlier one, whose sequence numbers mean other commits.

use crate::fence::{self, Generation};
use crate::keys::{Epoch, Keys, Lineage, Part};
use crate::listing::Listing;
use crate::manifest::{self, About, Manifest};
use crate::rotation::{self, TOTAL_BYTES_MAX};
use crate::segment::{Segment, SegmentWriter, matters};
use crate::snapshot::TableWriter;
use crate::{Error, Result, document};
use bytes::Bytes;
use meta::{Engine, LogError, Reader, Seqno};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use store::{Clock, ObjectStore, Precondition, PutOptions, StoreError, Timestamp, blocking};

/// The log consumer for which the engine keeps ops that are not in the backup yet.
const CONSUMER: &str = "backup";

/// The log consumer for which the engine keeps ops until the first snapshot of an epoch is stored, and while a [`ChangeWatch`] waits
/// for a reason to begin a backup.
const CONSUMER_BEFORE_SNAPSHOT: &str = "backup-next";

/// Ops read from the log at a time.
const PAGE_OPS: usize = 4096;

/// Length of the log since the newest snapshot at which the next snapshot is due. It bounds how long the log takes to replay.
const LOG_BYTES_MAX: u64 = 64 << 20;

/// The engine, the bucket and the clock of an exporter.
#[derive(Debug, Clone)]
pub struct Parts {
    /// The bucket itself, without a write-back log in front of it.
    pub store: Arc<dyn ObjectStore>,
    /// The engine whose records are exported.
    pub engine: Arc<dyn Engine>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// Settings of an exporter.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the backup is.
    pub keys: Keys,
    /// The lineage of the state directory.
    pub lineage: Lineage,
    /// The random number of the state directory, which the fence names.
    pub holder: u64,
    /// The volume that is backed up.
    pub about: About,
    /// Interval of snapshots.
    pub snapshot_interval: Duration,
    /// Whether all names are only in the engine. Otherwise names that were learned from the bucket are no reason for a backup.
    pub has_all_names: bool,
}

/// The reason for a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The interval between passes is over.
    Interval,
    /// The mount ends: what has changed since the last snapshot goes into a snapshot.
    End,
}

/// A pass that [`Exporter::begin`] has begun and [`Exporter::export`] completes: a snapshot if one is due, and the newest commit to store. The
/// segments are in the exporter.
pub struct Pass {
    snapshot: Option<(Arc<dyn Reader>, Seqno)>,
    read_at: Timestamp,
    /// The newest commit that the pass stores.
    to: Seqno,
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("to", &self.to).finish_non_exhaustive()
    }
}

/// Progress of an exporter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExporterStatus {
    /// The generation.
    pub generation: u32,
    /// The moment as of which the backup is complete; `None` before the first pass that completed it, also if the bucket has a backup.
    pub current_at: Option<Timestamp>,
    /// When the newest snapshot was taken or, if an earlier process took it, was stored by the clock of the bucket.
    pub snapshot_at: Option<Timestamp>,
}

/// Keeps a backup current.
#[derive(Debug)]
pub struct Exporter {
    parts: Parts,
    settings: Settings,
    generation: Generation,
    epoch: Epoch,
    /// The commit up to which the epoch can be restored; `None` if the next pass has to begin with a snapshot, because the epoch has none,
    /// or because ops after the last segment are missing in the log.
    stored: Option<Seqno>,
    snapshot_at: Option<Timestamp>,
    current_at: Option<Timestamp>,
    /// Length of the segments since the newest snapshot, in bytes.
    log_bytes: u64,
    /// Whether something changed since the newest snapshot.
    is_snapshot_old: bool,
    /// Ops that were read and are not stored, up to `read`.
    pending: VecDeque<Segment>,
    read: Seqno,
    /// Whether a change since `stored` is a reason for a backup.
    has_changes: bool,
}

impl Exporter {
    /// Opens a lineage, and begins a generation of it. `has_changes` says whether the engine has changes that need a backup; it counts only
    /// if the backup in the bucket cannot be continued.
    ///
    /// # Errors
    /// [`Error::Superseded`] if another state directory has taken over the lineage.
    pub async fn open(parts: Parts, settings: Settings, has_changes: bool) -> Result<Self> {
        let (store, keys, lineage) = (parts.store.as_ref(), &settings.keys, settings.lineage);
        let generation = fence::begin(store, keys, lineage, settings.holder, parts.clock.now()).await?;
        let listing = Listing::read(store, keys, lineage).await?;
        let mut exporter = Self {
            epoch: Epoch(generation.number),
            generation,
            stored: None,
            snapshot_at: None,
            current_at: None,
            log_bytes: 0,
            is_snapshot_old: true,
            pending: VecDeque::new(),
            read: parts.engine.head(),
            has_changes: false,
            parts,
            settings,
        };
        let exported_to = exporter.on_engine(|engine| Ok(engine.cursor(CONSUMER).ok())).await?;
        exporter.continue_epoch(&listing, exported_to);
        if exporter.stored.is_some() {
            exporter.on_engine(|engine| Ok(engine.forget_consumer(CONSUMER_BEFORE_SNAPSHOT)?)).await?;
        } else {
            exporter.begin_epoch().await?;
            exporter.has_changes |= has_changes;
        }
        Ok(exporter)
    }

    /// Does work with the engine, which may be far away, on a thread for blocking work.
    async fn on_engine<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Engine) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let engine = Arc::clone(&self.parts.engine);
        blocking(move || Ok(work(engine.as_ref()))).await?
    }

    /// Continues the newest epoch if the engine has exported exactly what the bucket has.
    fn continue_epoch(&mut self, listing: &Listing, exported_to: Option<Seqno>) {
        let Some(newest) = listing.complete().last().copied() else { return };
        let end = listing.end(newest.epoch, newest.seqno);
        if exported_to != Some(end) {
            return;
        }
        let segments = listing.chain(newest.epoch, newest.seqno);
        let log = listing.epochs.get(&newest.epoch).map(|parts| &parts.log);
        let len = |segment| log.and_then(|log| log.get(segment)).copied().unwrap_or_default();
        self.epoch = newest.epoch;
        self.stored = Some(end);
        self.read = end;
        self.snapshot_at = Some(newest.at);
        self.log_bytes = segments.iter().map(len).sum();
        self.is_snapshot_old = !segments.is_empty();
    }

    /// Begins an epoch of this generation, which needs a snapshot. Without a reason for a backup the snapshot waits for a change.
    async fn begin_epoch(&mut self) -> Result<()> {
        let begin = |engine: &dyn Engine| {
            let head = engine.head();
            engine.forget_consumer(CONSUMER)?;
            engine.register(CONSUMER_BEFORE_SNAPSHOT, head)?;
            Ok(head)
        };
        self.read = self.on_engine(begin).await?;
        self.has_changes = self.settings.has_all_names;
        Ok(())
    }

    /// Returns what has been stored.
    pub fn status(&self) -> ExporterStatus {
        let Self { generation, current_at, snapshot_at, .. } = self;
        ExporterStatus { generation: generation.number, current_at: *current_at, snapshot_at: *snapshot_at }
    }

    /// Returns the newest commit that the last pass has read. After a pass without anything to store, the backup is as good as one of this
    /// commit.
    pub fn read_to(&self) -> Seqno {
        self.read
    }

    /// Reads what is not in the backup yet. Returns `None` if there is no reason to store anything. Begins a new epoch if the fence is
    /// missing in the bucket.
    ///
    /// The commits of the returned pass are durable in the engine.
    ///
    /// # Errors
    /// [`Error::Superseded`] if a later generation of the lineage has begun.
    pub async fn begin(&mut self, cause: Cause) -> Result<Option<Pass>> {
        if !self.generation.is_newest(self.parts.store.as_ref()).await? {
            self.start_again().await?;
        }
        let read_at = self.parts.clock.now();
        self.read_log().await?;
        let is_snapshot_due = self.is_snapshot_due(cause, read_at);
        if !self.has_changes && !is_snapshot_due {
            self.current_at = self.snapshot_at.map(|_| read_at);
            return Ok(None);
        }
        let mut to = self.read;
        let mut snapshot = None;
        if self.stored.is_none() || is_snapshot_due {
            let (reader, head) = self.on_engine(|engine| Ok(engine.snapshot_with_head()?)).await?;
            to = head;
            snapshot = Some((reader, head));
        }
        self.on_engine(|engine| Ok(engine.sync()?)).await?;
        Ok(Some(Pass { snapshot, read_at, to }))
    }

    /// Begins a new epoch in a bucket that has lost the fence, and perhaps all parts of the backup.
    async fn start_again(&mut self) -> Result<()> {
        tracing::warn!("the backup of the metadata is no longer in the bucket; a new one begins");
        *self = Self::open(self.parts.clone(), self.settings.clone(), true).await?;
        Ok(())
    }

    fn is_snapshot_due(&self, cause: Cause, now: Timestamp) -> bool {
        let is_changed = self.is_snapshot_old || self.has_changes;
        let is_over = self.snapshot_at.is_none_or(|at| now.since(at) >= self.settings.snapshot_interval);
        let is_log_long = self.log_bytes + self.pending_bytes() >= LOG_BYTES_MAX;
        is_changed && self.stored.is_some() && (is_over || is_log_long || cause == Cause::End)
    }

    fn pending_bytes(&self) -> u64 {
        self.pending.iter().map(Segment::len).sum()
    }

    /// Reads the log after `read`, on a thread for blocking work.
    async fn read_log(&mut self) -> Result<()> {
        let (from, room) = (self.read, LOG_BYTES_MAX.saturating_sub(self.pending_bytes()));
        let found = self.on_engine(move |engine| read_log(engine, from, room)).await?;
        self.has_changes |= found.has_changes;
        self.read = found.to;
        if found.is_complete && self.stored.is_some() {
            self.pending.extend(found.segments);
        } else {
            // The log is too long or no longer complete, or the epoch has no snapshot: only a snapshot can continue the backup.
            self.pending.clear();
            self.stored = None;
        }
        Ok(())
    }

    /// Stores what [`Exporter::begin`] returned, after the bucket has the content to which it refers. `on_stored` is called with each
    /// commit up to which the volume can be restored now.
    ///
    /// A call that is dropped or fails loses nothing: the next pass stores what is left.
    pub async fn export(&mut self, pass: Pass, mut on_stored: impl FnMut(Seqno) + Send) -> Result<()> {
        let Pass { snapshot, read_at, to } = pass;
        self.require_newest().await?;
        while let Some(segment) = self.pending.front().cloned() {
            self.store_segment(&segment, read_at).await?;
            self.pending.pop_front();
            on_stored(segment.to);
        }
        if let Some((reader, seqno)) = snapshot {
            self.store_snapshot(reader, seqno, read_at).await?;
            on_stored(seqno);
        }
        // Changes after `to` were not read yet, so none is forgotten.
        self.has_changes = false;
        self.current_at = Some(read_at);
        on_stored(to);
        Ok(())
    }

    async fn require_newest(&self) -> Result<()> {
        match self.generation.is_newest(self.parts.store.as_ref()).await? {
            true => Ok(()),
            false => Err(StoreError::Unavailable("the backup is no longer in the bucket".into()).into()),
        }
    }

    async fn store_segment(&mut self, segment: &Segment, read_at: Timestamp) -> Result<()> {
        let (lineage, epoch) = (self.settings.lineage, self.epoch);
        let sealed = segment.seal(lineage, epoch, read_at)?;
        let len = sealed.len() as u64;
        self.put(segment.part(epoch), sealed.into()).await?;
        self.log_bytes += len;
        self.stored = Some(segment.to);
        self.is_snapshot_old = true;
        let to = segment.to;
        self.on_engine(move |engine| Ok(engine.advance(CONSUMER, to)?)).await
    }

    async fn store_snapshot(
        &mut self,
        reader: Arc<dyn Reader>,
        seqno: Seqno,
        made_at: Timestamp,
    ) -> Result<()> {
        let (lineage, epoch) = (self.settings.lineage, self.epoch);
        let mut tables = TableWriter::new(reader, lineage, epoch, seqno);
        loop {
            let (writer, next) = tables.next().await?;
            tables = writer;
            let Some((part, sealed)) = next else { break };
            self.put(part, sealed).await?;
        }
        let manifest = Manifest {
            version: manifest::VERSION,
            about: self.settings.about.clone(),
            seqno: seqno.0,
            made_at: made_at.0,
            tables: tables.into_entries(),
        };
        let text = document::encode(&manifest).map_err(std::io::Error::from)?;
        self.put(Part::Manifest { epoch, seqno }, text.into()).await?;
        if self.stored.is_none() {
            // The log continues from here.
            self.stored = Some(seqno);
            self.read = seqno;
            let register = move |engine: &dyn Engine| {
                engine.register(CONSUMER, seqno)?;
                Ok(engine.forget_consumer(CONSUMER_BEFORE_SNAPSHOT)?)
            };
            self.on_engine(register).await?;
        }
        self.snapshot_at = Some(made_at);
        self.log_bytes = 0;
        self.is_snapshot_old = false;
        self.rotate().await;
        Ok(())
    }

    async fn put(&self, part: Part, body: Bytes) -> Result<()> {
        let key = self.settings.keys.part(self.settings.lineage, part)?;
        self.parts.store.put(&key, [body].into_iter().collect(), PutOptions::default()).await?;
        Ok(())
    }

    /// Deletes what the rotation no longer keeps. Parts that cannot be deleted now are deleted after the next snapshot.
    async fn rotate(&self) {
        if let Err(error) = self.delete_superfluous().await {
            tracing::warn!(
                "old parts of the backup cannot be deleted; they stay in the bucket until after the next snapshot: {error}"
            );
        }
    }

    async fn delete_superfluous(&self) -> Result<()> {
        let (store, keys, lineage) = (self.parts.store.as_ref(), &self.settings.keys, self.settings.lineage);
        self.require_newest().await?;
        let listing = Listing::read(store, keys, lineage).await?;
        for part in rotation::superfluous(&listing, self.epoch, TOTAL_BYTES_MAX) {
            store.delete(&keys.part(lineage, part)?, Precondition::None).await?;
        }
        Ok(())
    }
}

/// Returns the commit up to which the op log is in a backup; `None` if no backup continues the log.
pub fn exported_to(engine: &dyn Engine) -> Result<Option<Seqno>> {
    match engine.cursor(CONSUMER) {
        Ok(cursor) => Ok(Some(cursor)),
        Err(LogError::NoConsumer(_) | LogError::Lagged { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Has the next exporter begin a new epoch, because the history of commits may not be the one that the bucket has.
pub fn forget_history(engine: &dyn Engine) -> Result<()> {
    Ok(engine.forget_consumer(CONSUMER)?)
}

/// Watches the log of an engine without a backup for a reason to begin one.
#[derive(Debug)]
pub struct ChangeWatch {
    at: Seqno,
}

impl ChangeWatch {
    /// Begins at the newest commit.
    pub fn begin(engine: &dyn Engine) -> Result<Self> {
        let at = engine.head();
        engine.register(CONSUMER_BEFORE_SNAPSHOT, at)?;
        Ok(Self { at })
    }

    /// Returns whether the log has a change that only the metadata has, after the ops that earlier calls found without one; also true if the
    /// log no longer has all ops.
    pub fn has_changes(&mut self, engine: &dyn Engine) -> Result<bool> {
        loop {
            let page = match engine.log_after(self.at, PAGE_OPS) {
                Ok(page) => page,
                Err(LogError::Lagged { .. }) => return Ok(true),
                Err(error) => return Err(error.into()),
            };
            if page.iter().any(|logged| matters(&logged.op)) {
                return Ok(true);
            }
            let Some(last) = page.last() else { break };
            self.at = last.seqno;
        }
        engine.advance(CONSUMER_BEFORE_SNAPSHOT, self.at)?;
        Ok(false)
    }
}

/// Ops read from the log.
struct FoundOps {
    segments: Vec<Segment>,
    to: Seqno,
    has_changes: bool,
    /// Whether the segments have all ops.
    is_complete: bool,
}

/// Reads the ops after a commit, as segments. Returns none, and `is_complete: false`, if they take more than `room` bytes, or if the log no
/// longer has all of them.
fn read_log(engine: &dyn Engine, from: Seqno, room: u64) -> Result<FoundOps> {
    let head = engine.head();
    let mut writer = SegmentWriter::new(from);
    let (mut cursor, mut has_changes) = (from, false);
    loop {
        let page = match engine.log_after(cursor, PAGE_OPS) {
            Ok(page) => page,
            Err(LogError::Lagged { head }) => {
                return Ok(FoundOps {
                    segments: Vec::new(),
                    to: head,
                    has_changes: true,
                    is_complete: false,
                });
            }
            Err(error) => return Err(Error::from(error)),
        };
        let Some(last) = page.last() else { break };
        cursor = last.seqno;
        has_changes |= page.iter().any(|logged| matters(&logged.op));
        page.iter().for_each(|logged| writer.add(logged));
        if writer.done.iter().map(Segment::len).sum::<u64>() > room {
            return Ok(FoundOps {
                segments: Vec::new(),
                to: cursor.max(head),
                has_changes,
                is_complete: false,
            });
        }
    }
    writer.end();
    Ok(FoundOps { segments: writer.done, to: cursor, has_changes, is_complete: true })
}
