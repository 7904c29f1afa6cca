//! Maintenance: runs checkpoints, compaction and cleaning when they are due, and slows down writers that get ahead of them.

use super::{Drive, Frontend};
use crate::engine::{Checked, Engine, FrameObject, InlinePut, Prepared};
use crate::error::{Error, Result};
use crate::format::{Body, Change, IndexKey, InlineData, Kind, Zone};
use crate::policy::{Policy, Purpose, Urgency};
use crate::space::{Pins, lock};
use crate::verdict::Verdict;
use futures_util::future::try_join_all;
use std::pin::pin;
use std::sync::Arc;

impl Drive {
    /// Runs maintenance whenever it is due, for as long as the future is polled: checkpoints, compaction, cleaning.
    pub async fn run_maintenance(&self) {
        loop {
            self.0.maintenance_due.notified().await;
            if let Err(error) = self.maintain().await {
                tracing::warn!(%error, "a checkpoint, a compaction or cleaning failed; it is tried again when maintenance is next due");
            }
        }
    }

    /// Runs the maintenance that is due now.
    pub async fn maintain(&self) -> Result<()> {
        self.0.maintain().await
    }

    /// Makes a checkpoint if anything was committed since the last, so that the next opening need not read the log.
    /// When this returns, no maintenance is in progress.
    pub async fn close(&self) -> Result<()> {
        let _no_cleaning = self.0.cleaning_lock.lock().await;
        let _only_checkpoint = self.0.checkpoint_lock.lock().await;
        let work = |engine: &Arc<Engine>| {
            // A maintenance task that was aborted may still be merging tables on its own thread.
            engine.wait_for_compaction();
            if engine.log.published().is_dirty() { engine.checkpoint() } else { Ok(()) }
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
        self.checkpoint_if(needs_checkpoint).await?;
        let compacted = self.compact().await;
        let _one_at_a_time = self.cleaning_lock.lock().await;
        while self.needs_cleaning() && self.clean_one(Urgency::Routine).await? {}
        compacted
    }

    /// Merges tables of the index until no merge is due, with a checkpoint after each.
    async fn compact(&self) -> Result<()> {
        while self.compact_once().await? {
            self.checkpoint_if(|_| true).await?;
        }
        Ok(())
    }

    /// Merges tables if that is due; returns false if nothing was merged. A merge may take long, so checkpoints
    /// continue meanwhile.
    async fn compact_once(&self) -> Result<bool> {
        let mut merging = pin!(self.run_blocking(|engine| engine.compact()));
        loop {
            tokio::select! {
                biased;
                merged = &mut merging => return merged,
                () = self.maintenance_due.notified() => {
                    if let Err(error) = self.checkpoint_if(needs_checkpoint).await {
                        tracing::warn!(%error, "a checkpoint failed during a compaction; it is tried again when maintenance is next due");
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

    /// Waits while the log or the memtable is nearly full (back-pressure), unless the work that would make room fails.
    /// Must be called before key locks are taken, as cleaning locks other keys.
    pub(crate) async fn wait_for_room(&self) {
        self.wait_for_memtable().await;
        self.wait_for_log_zones().await;
    }

    /// Writes a checkpoint if the index has no memory left for further changes.
    async fn wait_for_memtable(&self) {
        if !self.engine.policy.must_wait_for_checkpoint(&self.engine.usage()) {
            return;
        }
        let is_memory_full = |engine: &Engine| engine.policy.is_memory_full(engine.index.size());
        if let Err(error) = self.checkpoint_if(is_memory_full).await {
            tracing::warn!(%error, "the memory of the index is full, and the checkpoint that would empty it failed; the next write tries it again");
        }
    }

    /// Cleans zones while the log is nearly full.
    async fn wait_for_log_zones(&self) {
        let is_needed = || Policy::must_wait_for_cleaning(lock(&self.engine.space).free_space());
        if !is_needed() {
            return;
        }
        let _one_at_a_time = self.cleaning_lock.lock().await;
        while is_needed()
            && let Some((zone, entry)) = self.zone_to_clean(Urgency::LogNearlyFull)
            && matches!(self.clean(zone, entry).await, Ok(true))
        {}
    }

    /// Cleans zones while the log has no room for a small object. Fails with [`Error::Full`] if no zone is worth
    /// cleaning.
    pub(super) async fn ensure_log_room(&self, len_bytes: u64) -> Result<()> {
        let has_room = || self.engine.policy.admits_inline(&self.engine.usage(), len_bytes);
        while !has_room() {
            let _one_at_a_time = self.cleaning_lock.lock().await;
            if !has_room() && !self.clean_one(Urgency::Routine).await? {
                return Err(Error::Full);
            }
        }
        Ok(())
    }

    /// Wakes maintenance if any is due.
    pub(super) fn notify_maintenance(&self) {
        let (policy, usage) = (self.engine.policy, self.engine.usage());
        let needs_checkpoint = policy.needs_checkpoint(usage.index, usage.log);
        if needs_checkpoint || policy.needs_cleaning(usage.space, usage.index) {
            self.maintenance_due.notify_one();
        }
    }

    /// Returns whether few zones are free, so that zones with dead bytes should be cleaned.
    fn needs_cleaning(&self) -> bool {
        let usage = self.engine.usage();
        self.engine.policy.needs_cleaning(usage.space, usage.index)
    }

    /// Cleans the zone that gains most, after a checkpoint if that is needed for a zone to be cleaned. Returns false if
    /// the gain is too small for this urgency or nothing was gained.
    async fn clean_one(&self, urgency: Urgency) -> Result<bool> {
        let mut found = self.zone_to_clean(urgency);
        if found.is_none() && self.engine.log.published().is_dirty() {
            // Zones that a recovery needs can be cleaned after a checkpoint.
            self.run_blocking(|engine| engine.checkpoint()).await?;
            found = self.zone_to_clean(urgency);
        }
        let Some((zone, entry)) = found else { return Ok(false) };
        self.clean(zone, entry).await
    }

    /// Returns the zone that gains most, unless the gain is too small for this urgency.
    fn zone_to_clean(&self, urgency: Urgency) -> Option<(u64, Zone)> {
        let gain_bytes_min = self.engine.policy.gain_bytes_min(urgency);
        let best = lock(&self.engine.space).log_zones().best_to_clean();
        best.filter(|(_, entry)| entry.reclaimable_bytes() >= gain_bytes_min)
    }

    /// Moves all live bytes out of a zone. Returns false if nothing was gained. A zone that is damaged or cannot be
    /// read is excluded from cleaning, and the result is true.
    async fn clean(&self, zone: u64, entry: Zone) -> Result<bool> {
        match Verdict::of(self.move_live_objects(zone, entry).await)? {
            Verdict::Right(is_gain) => Ok(is_gain),
            Verdict::Wrong(error) | Verdict::Unreadable(error) => {
                // If the drive accepts no writes any more, the error may be one of a write, which says nothing about
                // the zone.
                self.engine.check_writable().map_err(|_| error.clone())?;
                tracing::warn!(zone, %error, "a zone cannot be cleaned, as data that this needs is damaged or cannot be read: scrub the drive");
                lock(&self.engine.space).log_zones_mut().mark_uncleanable(zone);
                Ok(true)
            }
        }
    }

    /// Writes the live objects of a zone to the log again. Returns whether that gains space.
    async fn move_live_objects(&self, zone: u64, entry: Zone) -> Result<bool> {
        tracing::debug!(zone, live_bytes = entry.live_bytes, "cleaning a zone");
        // The zone must not be reused while it is read, even if none of its bytes are live any more.
        let mut pins = Pins::new(&self.engine.space);
        pins.pin_zone(zone);
        let (mut at, mut moved_bytes) = (0, 0);
        let before = self.engine.log.published().growth();
        while at < entry.used_bytes {
            let found =
                self.run_blocking(move |engine| engine.objects_of_frames(zone, at, entry.used_bytes)).await?;
            let moves = found.objects.into_iter().map(|object| self.move_inline(object));
            // Concurrently, so that the objects share frames. With a frame per small object nothing would be gained.
            moved_bytes += try_join_all(moves).await?.into_iter().sum::<u64>();
            at = found.next;
        }
        drop(pins);
        let left = lock(&self.engine.space).log_zones().get(zone);
        // Without a gain cleaning must stop, although zones seem worth cleaning.
        let log_bytes = self.engine.log.published().growth().since(&before).share_of(moved_bytes);
        let is_gain = self.engine.policy.is_gain(log_bytes);
        Ok(is_gain && left.is_none_or(|left| left.live_bytes < entry.live_bytes))
    }

    /// Writes inline data again if its object still uses it. Returns the bytes that this takes in the log.
    async fn move_inline(&self, (key, stored, bytes): FrameObject) -> Result<u64> {
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

/// Returns whether a checkpoint is due.
fn needs_checkpoint(engine: &Engine) -> bool {
    engine.policy.needs_checkpoint(engine.index.size(), engine.log.published().size())
}
