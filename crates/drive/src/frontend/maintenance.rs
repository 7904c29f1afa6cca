//! Maintenance: runs checkpoints, compaction and cleaning when they are due, and slows down writers that get ahead of them.

use super::{Drive, Frontend, decode_record};
use crate::error::{Error, Result};
use crate::format::{Body, Change, IndexKey, InlineData, Kind, ObjectRecord, ObjectSummary, Zone};
use crate::engine::{Checked, Engine, InlinePut, LogReader, Prepared, Purpose};
use crate::space::{LOG_RESERVE_ZONES, Pins, lock};
use bytes::Bytes;
use futures_util::future::try_join_all;
use std::pin::pin;
use std::sync::Arc;

/// Zones are cleaned while fewer than the reserved zones plus the first number are free. On drives with few zones, the total number of
/// zones divided by the second number is used instead of the first.
const FREE_ZONES_TARGET: u64 = 2 * LOG_RESERVE_ZONES;
const FREE_ZONES_TARGET_DIVISOR: u64 = 8;

/// A zone is worth cleaning if that frees at least a zone's length divided by the first number, or by the second if the log is
/// nearly full.
pub(super) const GAIN_DIVISOR: u64 = 8;
const GAIN_DIVISOR_WHEN_FULL: u64 = 64;

impl Drive {
    /// Runs maintenance whenever it is due, for as long as the future is polled: checkpoints, compaction, cleaning.
    pub async fn run_maintenance(&self) {
        loop {
            self.0.maintenance_due.notified().await;
            if let Err(error) = self.maintain().await {
                tracing::warn!(%error, "maintenance of the drive failed");
            }
        }
    }

    /// Runs the maintenance that is due now.
    pub async fn maintain(&self) -> Result<()> {
        self.0.maintain().await
    }

    /// Makes a checkpoint, so that the next opening need not read the log. When this returns, no maintenance is in progress.
    pub async fn close(&self) -> Result<()> {
        let _no_cleaning = self.0.cleaning_lock.lock().await;
        let _only_checkpoint = self.0.checkpoint_lock.lock().await;
        let work = |engine: &Arc<Engine>| {
            // A maintenance task that was aborted may still be merging tables on its own thread.
            engine.wait_for_compaction();
            if engine.is_dirty() { engine.checkpoint() } else { Ok(()) }
        };
        self.0.run_blocking(work).await
    }

    /// Compares the index with the space, block by block. Reads the whole index, but not the objects.
    pub async fn check(&self) -> Result<Checked> {
        self.0.run_blocking(|engine| engine.check()).await
    }
}

impl Frontend {
    /// Runs the maintenance that is due now.
    pub(crate) async fn maintain(&self) -> Result<()> {
        self.checkpoint_if(Engine::needs_checkpoint).await?;
        let compacted = self.compact().await;
        let _one_at_a_time = self.cleaning_lock.lock().await;
        while self.needs_cleaning() && self.clean_one(GAIN_DIVISOR).await? {}
        compacted
    }

    async fn compact(&self) -> Result<()> {
        while self.compact_once().await? {
            self.checkpoint_if(|_| true).await?;
        }
        Ok(())
    }

    /// Merges tables if that is due; returns false if not. A merge may take long, so checkpoints continue meanwhile.
    async fn compact_once(&self) -> Result<bool> {
        let mut merging = pin!(self.run_blocking(|engine| engine.compact()));
        loop {
            tokio::select! {
                biased;
                merged = &mut merging => return merged,
                () = self.maintenance_due.notified() => {
                    if let Err(error) = self.checkpoint_if(Engine::needs_checkpoint).await {
                        tracing::warn!(%error, "a checkpoint failed during a compaction");
                    }
                }
            }
        }
    }

    /// Makes a checkpoint if it is needed, and still needed after a checkpoint in progress has ended.
    async fn checkpoint_if(&self, is_needed: impl Fn(&Engine) -> bool) -> Result<()> {
        if !is_needed(&self.engine) {
            return Ok(());
        }
        let _only_checkpoint = self.checkpoint_lock.lock().await;
        match is_needed(&self.engine) {
            true => self.run_blocking(|engine| engine.checkpoint()).await,
            false => Ok(()),
        }
    }

    /// Waits while the log or the memtable is nearly full (back-pressure). Must be called before key locks are taken, as cleaning locks
    /// other keys.
    pub(crate) async fn wait_for_room(&self) {
        self.wait_for_memtable().await;
        self.wait_for_log_zones().await;
    }

    async fn wait_for_memtable(&self) {
        // If checkpoints fail again and again, maintenance retries them and commits refuse changes that grow. Writers do not retry too.
        if !self.engine.is_memory_full() || self.engine.is_index_unwritable() {
            return;
        }
        if let Err(error) = self.checkpoint_if(Engine::is_memory_full).await {
            tracing::warn!(%error, "the memory of the index is full and a checkpoint failed");
        }
    }

    async fn wait_for_log_zones(&self) {
        let is_needed = || lock(&self.engine.space).log_zones_left() < LOG_RESERVE_ZONES;
        if !is_needed() {
            return;
        }
        let _one_at_a_time = self.cleaning_lock.lock().await;
        while is_needed()
            && let Some((zone, entry)) = self.zone_to_clean(GAIN_DIVISOR_WHEN_FULL)
            && matches!(self.clean(zone, entry).await, Ok(true))
        {}
    }

    /// Returns whether few zones are free, so that zones with dead bytes should be cleaned.
    pub(crate) fn needs_cleaning(&self) -> bool {
        let target = FREE_ZONES_TARGET.min(self.engine.geometry.zones() / FREE_ZONES_TARGET_DIVISOR);
        lock(&self.engine.space).free_zones() < self.engine.zones_reserved() + target
    }

    /// Cleans the zone that gains most. Returns false if the gain is less than a zone's length divided by `divisor`.
    pub(crate) async fn clean_one(&self, divisor: u64) -> Result<bool> {
        let mut found = self.zone_to_clean(divisor);
        if found.is_none() && self.engine.is_dirty() {
            // Zones that a recovery needs can be cleaned after a checkpoint.
            self.run_blocking(|engine| engine.checkpoint()).await?;
            found = self.zone_to_clean(divisor);
        }
        let Some((zone, entry)) = found else { return Ok(false) };
        self.clean(zone, entry).await
    }

    /// Returns the zone that gains most, unless the gain is less than a zone's length divided by `divisor`.
    fn zone_to_clean(&self, divisor: u64) -> Option<(u64, Zone)> {
        let gain_bytes_min = self.engine.geometry.zone_bytes() / divisor;
        let best_zone_to_clean = lock(&self.engine.space).best_zone_to_clean();
        best_zone_to_clean.filter(|(_, entry)| entry.reclaimable_bytes() >= gain_bytes_min)
    }

    /// Moves all live bytes out of a zone. Returns false if nothing was gained. A zone that cannot be read is excluded from cleaning.
    async fn clean(&self, zone: u64, entry: Zone) -> Result<bool> {
        let cleaned = self.move_live_objects(zone, entry).await;
        match cleaned {
            Err(error) if error.is_damage() && self.engine.check_writable().is_ok() => {
                tracing::warn!(zone, %error, "a zone is damaged and cannot be cleaned: scrub the drive");
                lock(&self.engine.space).mark_uncleanable(zone);
                Ok(true)
            }
            cleaned => cleaned,
        }
    }

    async fn move_live_objects(&self, zone: u64, entry: Zone) -> Result<bool> {
        let zone_bytes = self.engine.geometry.zone_bytes();
        tracing::debug!(zone, live_bytes = entry.live_bytes, "cleaning a zone");
        // The zone must not be reused while it is read, even if none of its bytes are live any more.
        let mut pins = Pins::new(&self.engine.space);
        pins.pin_zone(zone);
        let (mut at, mut moved_bytes) = (0, 0);
        let before = self.engine.log_growth();
        while at < entry.used_bytes {
            let found =
                self.run_blocking(move |engine| engine.objects_of_frames(zone, at, entry.used_bytes)).await?;
            let moves =
                found.objects.into_iter().map(|(key, record, bytes)| self.move_inline(key, record, bytes));
            // Concurrently, so that the objects share frames. With a frame per small object nothing would be gained.
            moved_bytes += try_join_all(moves).await?.into_iter().sum::<u64>();
            at = found.next;
        }
        drop(pins);
        let left = lock(&self.engine.space).zones().find(|&(left, _)| left == zone);
        // Padding of frames and zones may take all that was dead. Then cleaning must stop, although zones seem worth cleaning.
        let log_bytes = self.engine.log_growth().since(&before).share_of(moved_bytes);
        let is_gain = log_bytes + zone_bytes / GAIN_DIVISOR_WHEN_FULL <= zone_bytes;
        Ok(is_gain && left.is_none_or(|(_, left)| left.live_bytes < entry.live_bytes))
    }

    /// Writes inline data again if its object still uses it. Returns the bytes that this takes in the log.
    async fn move_inline(&self, key: IndexKey, stored: ObjectRecord, bytes: Bytes) -> Result<u64> {
        let Some((bucket, object)) = key.bucket_and_key() else { return Ok(0) };
        let locks = vec![self.locks.lock_key(bucket, &object).await];
        let current = IndexKey::prefix(Kind::Object, bucket).append(&object);
        for key in [current, IndexKey::version(bucket, &object, stored.write)] {
            let Some(mut record) = self.record(&key).await? else { continue };
            if record.body != stored.body {
                continue;
            }
            let Body::Inline(InlineData { at, len, .. }) = record.body else { continue };
            if let Body::Inline(inline) = &mut record.body {
                inline.at = 0;
            }
            let inline_puts = vec![InlinePut::new(key, record, bytes)];
            let changes = vec![Change::Dead { at, len }];
            let purpose = Purpose::Moves;
            let prepared = Prepared { inline_puts, changes, purpose, ..Prepared::default() };
            let frame_bytes = prepared.frame_bytes();
            return self.commit(prepared, locks).await.map(|()| frame_bytes);
        }
        Ok(0)
    }
}

/// Key, record and bytes of an object in a frame.
type FrameObject = (IndexKey, ObjectRecord, Bytes);

/// Objects of consecutive frames.
struct FrameObjects {
    objects: Vec<FrameObject>,
    /// The position of the next frame in its zone.
    next: u64,
}

impl Engine {
    /// Returns the inline objects of the frames from a position of a zone on, as many as are moved at a time.
    fn objects_of_frames(self: &Arc<Self>, zone: u64, mut at: u64, used_bytes: u64) -> Result<FrameObjects> {
        let mut reader = LogReader::new(self.device.clone(), self.drive, self.geometry);
        let mut objects = Vec::new();
        let mut len_bytes = 0;
        while at < used_bytes && len_bytes < self.frame_bytes_max() {
            let begins = objects.len();
            at += self.objects_of_frame(&mut reader, (zone, at), &mut objects)?;
            len_bytes += objects[begins..].iter().map(|(_, _, bytes)| bytes.len() as u64).sum::<u64>();
        }
        Ok(FrameObjects { objects, next: at })
    }

    /// Adds the inline objects of the frame at a position of a zone. Returns the frame's length in bytes.
    fn objects_of_frame(
        &self,
        reader: &mut LogReader,
        (zone, at): (u64, u64),
        objects: &mut Vec<FrameObject>,
    ) -> Result<u64> {
        let place = self.geometry.zone_at(zone) + at;
        let frame = reader.frame(zone, at)?.ok_or(Error::damaged("a frame of small objects", place))?;
        let len_bytes = self.geometry.frame_bytes(&frame.header);
        for change in frame.changes {
            let Change::Put { key, value } = change else { continue };
            let key = IndexKey(key);
            if key.bucket_and_key().is_none() || ObjectSummary::decode(&value).is_none() {
                continue;
            }
            let record = decode_record(&value)?;
            if let Body::Inline(inline) = &record.body
                && (place..place + len_bytes).contains(&inline.at)
            {
                let bytes = reader.bytes(zone, at + (inline.at - place), inline.len.into())?;
                let bytes = Bytes::copy_from_slice(bytes);
                objects.push((key, record, bytes));
            }
        }
        Ok(len_bytes)
    }
}
