//! Maintenance: runs checkpoints, compaction and cleaning when they are due, and slows down writers that get ahead of them.

use super::{Drive, Shell, decoded};
use crate::error::{Error, Result};
use crate::format::{Body, Change, Head, IndexKey, Kind, ObjectRecord, Piece, Zone};
use crate::machine::{Checked, LogReader, Machine, Prepared, Purpose, Small};
use crate::space::{Pins, ZONES_RESERVED, lock};
use bytes::Bytes;
use futures_util::future::try_join_all;
use std::pin::pin;
use std::sync::Arc;

/// Zones are cleaned while fewer than the reserved zones plus the first number are free. On drives with few zones, the total number of
/// zones divided by the second number is used instead of the first.
const ZONES_AIMED: u64 = 2 * ZONES_RESERVED;
const PART_AIMED: u64 = 8;

/// A zone is worth cleaning if that frees at least a zone's length divided by the first number, or by the second if the log is
/// nearly full.
pub(super) const WON_MIN: u64 = 8;
const WON_LEAST: u64 = 64;

impl Drive {
    /// Runs maintenance whenever it is due, for as long as the future is polled: checkpoints, compaction, cleaning.
    pub async fn keep_up(&self) {
        loop {
            self.0.grown.notified().await;
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
        let _no_cleaning = self.0.keeping.lock().await;
        let _only_checkpoint = self.0.checkpointing.lock().await;
        let work = |machine: &Arc<Machine>| {
            // A maintenance task that was aborted may still be merging tables on its own thread.
            machine.wait_for_compaction();
            if machine.is_dirty() { machine.checkpoint() } else { Ok(()) }
        };
        self.0.blocking(work).await
    }

    /// Compares the index with the space, block by block. Reads the whole index, but not the objects.
    pub async fn check(&self) -> Result<Checked> {
        self.0.blocking(|machine| machine.check()).await
    }
}

impl Shell {
    /// Runs the maintenance that is due now.
    pub(crate) async fn maintain(&self) -> Result<()> {
        self.checkpoint_if(Machine::wants_checkpoint).await?;
        let compacted = self.compact().await;
        let _one_at_a_time = self.keeping.lock().await;
        while self.wants_cleaning() && self.clean_one(WON_MIN).await? {}
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
        let mut merging = pin!(self.blocking(|machine| machine.compact()));
        loop {
            tokio::select! {
                biased;
                merged = &mut merging => return merged,
                () = self.grown.notified() => {
                    if let Err(error) = self.checkpoint_if(Machine::wants_checkpoint).await {
                        tracing::warn!(%error, "a checkpoint failed during a compaction");
                    }
                }
            }
        }
    }

    /// Makes a checkpoint if it is needed, and still needed after a checkpoint in progress has ended.
    async fn checkpoint_if(&self, is_needed: impl Fn(&Machine) -> bool) -> Result<()> {
        if !is_needed(&self.machine) {
            return Ok(());
        }
        let _only_checkpoint = self.checkpointing.lock().await;
        match is_needed(&self.machine) {
            true => self.blocking(|machine| machine.checkpoint()).await,
            false => Ok(()),
        }
    }

    /// Waits while the log or the memtable is nearly full (back-pressure). Must be called before key locks are taken, as cleaning locks
    /// other keys.
    pub(crate) async fn relieve(&self) {
        self.relieve_memory().await;
        self.relieve_log().await;
    }

    async fn relieve_memory(&self) {
        // If checkpoints fail again and again, maintenance retries them and commits refuse changes that grow. Writers do not retry too.
        if !self.machine.is_memory_full() || self.machine.is_stuck() {
            return;
        }
        if let Err(error) = self.checkpoint_if(Machine::is_memory_full).await {
            tracing::warn!(%error, "the memory of the index is full and a checkpoint failed");
        }
    }

    async fn relieve_log(&self) {
        let is_needed = || lock(&self.machine.space).log_zones() < ZONES_RESERVED;
        if !is_needed() {
            return;
        }
        let _one_at_a_time = self.keeping.lock().await;
        while is_needed()
            && let Some((zone, entry)) = self.worth_cleaning(WON_LEAST)
            && matches!(self.clean(zone, entry).await, Ok(true))
        {}
    }

    /// Returns whether few zones are free, so that zones with dead bytes should be cleaned.
    pub(crate) fn wants_cleaning(&self) -> bool {
        let aimed = ZONES_AIMED.min(self.machine.geometry.zones() / PART_AIMED);
        lock(&self.machine.space).free_zones() < self.machine.zones_reserved() + aimed
    }

    /// Cleans the zone that gains most. Returns false if the gain is less than a zone's length divided by `divisor`.
    pub(crate) async fn clean_one(&self, won_min: u64) -> Result<bool> {
        let mut found = self.worth_cleaning(won_min);
        if found.is_none() && self.machine.is_dirty() {
            // Zones that a recovery needs can be cleaned after a checkpoint.
            self.blocking(|machine| machine.checkpoint()).await?;
            found = self.worth_cleaning(won_min);
        }
        let Some((zone, entry)) = found else { return Ok(false) };
        self.clean(zone, entry).await
    }

    /// Returns the zone that gains most, unless the gain is less than a zone's length divided by `divisor`.
    fn worth_cleaning(&self, won_min: u64) -> Option<(u64, Zone)> {
        let won_bytes_min = self.machine.geometry.zone_bytes() / won_min;
        let worth_most = lock(&self.machine.space).worth_most();
        worth_most.filter(|(_, entry)| entry.won_bytes() >= won_bytes_min)
    }

    /// Moves all live bytes out of a zone. Returns false if nothing was gained. A zone that cannot be read is excluded from cleaning.
    async fn clean(&self, zone: u64, entry: Zone) -> Result<bool> {
        let cleaned = self.move_pieces_of(zone, entry).await;
        match cleaned {
            Err(error) if error.is_damage() && self.machine.check_writable().is_ok() => {
                tracing::warn!(zone, %error, "a zone is damaged and cannot be cleaned: scrub the drive");
                lock(&self.machine.space).leave_uncleaned(zone);
                Ok(true)
            }
            cleaned => cleaned,
        }
    }

    async fn move_pieces_of(&self, zone: u64, entry: Zone) -> Result<bool> {
        let zone_bytes = self.machine.geometry.zone_bytes();
        tracing::debug!(zone, live_bytes = entry.live_bytes, "cleaning a zone");
        // The zone must not be reused while it is read, even if none of its bytes are live any more.
        let mut pins = Pins::new(&self.machine.space);
        pins.zone(zone);
        let (mut at, mut moved_bytes) = (0, 0);
        let before = self.machine.log_grown();
        while at < entry.used_bytes {
            let found =
                self.blocking(move |machine| machine.pieces_of_frames(zone, at, entry.used_bytes)).await?;
            let moves =
                found.pieces.into_iter().map(|(key, record, bytes)| self.move_piece(key, record, bytes));
            // Concurrently, so that the objects share frames. With a frame per small object nothing would be gained.
            moved_bytes += try_join_all(moves).await?.into_iter().sum::<u64>();
            at = found.next;
        }
        drop(pins);
        let left = lock(&self.machine.space).zones().find(|&(left, _)| left == zone);
        // Padding of frames and zones may take all that was dead. Then cleaning must stop, although zones seem worth cleaning.
        let log_bytes = self.machine.log_grown().since(&before).log_bytes_of(moved_bytes);
        let is_won = log_bytes + zone_bytes / WON_LEAST <= zone_bytes;
        Ok(is_won && left.is_none_or(|(_, left)| left.live_bytes < entry.live_bytes))
    }

    /// Writes inline data again if its object still uses it. Returns the bytes that this takes in the log.
    async fn move_piece(&self, key: IndexKey, stored: ObjectRecord, bytes: Bytes) -> Result<u64> {
        let Some((bucket, object)) = key.owner() else { return Ok(0) };
        let locks = vec![self.locks.hold(bucket, &object).await];
        let current = IndexKey::of(Kind::Object, bucket).then(&object);
        for key in [current, IndexKey::version(bucket, &object, stored.write)] {
            let Some(mut record) = self.record(&key).await? else { continue };
            if record.body != stored.body {
                continue;
            }
            let Body::Piece(Piece { at, len, .. }) = record.body else { continue };
            if let Body::Piece(piece) = &mut record.body {
                piece.at = 0;
            }
            let small = vec![Small::new(key, record, bytes)];
            let changes = vec![Change::Dead { at, len }];
            let purpose = Purpose::Moves;
            let prepared = Prepared { small, changes, purpose, ..Prepared::default() };
            let frame_bytes = prepared.frame_bytes();
            return self.commit(prepared, locks).await.map(|()| frame_bytes);
        }
        Ok(0)
    }
}

/// Key, record and bytes of an object in a frame.
type Found = (IndexKey, ObjectRecord, Bytes);

/// Objects of consecutive frames.
struct Pieces {
    pieces: Vec<Found>,
    /// The position of the next frame in its zone.
    next: u64,
}

impl Machine {
    /// Returns the inline objects of the frames from a position of a zone on, as many as are moved at a time.
    fn pieces_of_frames(self: &Arc<Self>, zone: u64, mut at: u64, used_bytes: u64) -> Result<Pieces> {
        let mut reader = LogReader::new(self.device.clone(), self.drive, self.geometry);
        let mut pieces = Vec::new();
        let mut len_bytes = 0;
        while at < used_bytes && len_bytes < self.frame_bytes_max() {
            let begins = pieces.len();
            at += self.pieces_of_frame(&mut reader, (zone, at), &mut pieces)?;
            len_bytes += pieces[begins..].iter().map(|(_, _, bytes)| bytes.len() as u64).sum::<u64>();
        }
        Ok(Pieces { pieces, next: at })
    }

    /// Adds the inline objects of the frame at a position of a zone. Returns the frame's length in bytes.
    fn pieces_of_frame(
        &self,
        reader: &mut LogReader,
        (zone, at): (u64, u64),
        pieces: &mut Vec<Found>,
    ) -> Result<u64> {
        let place = self.geometry.zone_at(zone) + at;
        let frame = reader.frame(zone, at)?.ok_or(Error::damaged("a frame of small objects", place))?;
        let len_bytes = self.geometry.frame_bytes(&frame.header);
        for change in frame.changes {
            let Change::Put { key, value } = change else { continue };
            let key = IndexKey(key);
            if key.owner().is_none() || Head::decode(&value).is_none() {
                continue;
            }
            let record = decoded(&value)?;
            if let Body::Piece(piece) = &record.body
                && (place..place + len_bytes).contains(&piece.at)
            {
                let bytes = reader.bytes(zone, at + (piece.at - place), piece.len.into())?;
                let bytes = Bytes::copy_from_slice(bytes);
                pieces.push((key, record, bytes));
            }
        }
        Ok(len_bytes)
    }
}
