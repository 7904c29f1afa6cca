//! Upkeep: checkpoints, compaction and cleaning, when it is time for them.

use super::{Drive, Shell, decoded};
use crate::error::{Error, Result};
use crate::format::{Body, Change, Head, IndexKey, Kind, ObjectRecord, Piece, Zone};
use crate::machine::{Checked, LogReader, Machine, Prepared, Purpose, Small};
use crate::space::{Pins, ZONES_RESERVED, lock};
use bytes::Bytes;
use futures_util::future::try_join_all;
use std::pin::pin;
use std::sync::Arc;

/// Zones are cleaned while fewer than so many more than the reserved ones are free, or than this part of all where those are few.
const ZONES_AIMED: u64 = 2 * ZONES_RESERVED;
const PART_AIMED: u64 = 8;

/// A zone of which less than this part would be won is not worth cleaning; and not where next to nothing is free either.
pub(super) const WON_MIN: u64 = 8;
const WON_LEAST: u64 = 64;

impl Drive {
    /// Keeps the drive up as long as it is polled: checkpoints, compaction, cleaning.
    pub async fn keep_up(&self) {
        loop {
            self.0.grown.notified().await;
            if let Err(error) = self.maintain().await {
                tracing::warn!(%error, "the drive could not be kept up");
            }
        }
    }

    /// Does what upkeep there is to do now.
    pub async fn maintain(&self) -> Result<()> {
        self.0.maintain().await
    }

    /// Makes a checkpoint, so that the next opening need not read the log. No upkeep is under way when it returns.
    pub async fn close(&self) -> Result<()> {
        let _no_cleaning = self.0.keeping.lock().await;
        let _only_checkpoint = self.0.checkpointing.lock().await;
        let work = |machine: &Arc<Machine>| {
            // An upkeep whose task was aborted may still be merging tables on a thread of its own.
            machine.wait_for_compaction();
            if machine.is_dirty() { machine.checkpoint() } else { Ok(()) }
        };
        self.0.blocking(work).await
    }

    /// Compares the index with the space, block by block, and reads all of the index; not the objects.
    pub async fn check(&self) -> Result<Checked> {
        self.0.blocking(|machine| machine.check()).await
    }
}

impl Shell {
    /// Does what upkeep there is to do now.
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

    /// Makes one table of several, if it is time; `false` if not. That may take long: checkpoints go on meanwhile.
    async fn compact_once(&self) -> Result<bool> {
        let mut merging = pin!(self.blocking(|machine| machine.compact()));
        loop {
            tokio::select! {
                biased;
                merged = &mut merging => return merged,
                () = self.grown.notified() => {
                    if let Err(error) = self.checkpoint_if(Machine::wants_checkpoint).await {
                        tracing::warn!(%error, "no checkpoint could be made beside a compaction");
                    }
                }
            }
        }
    }

    /// Makes a checkpoint, if there is still reason to when no other is under way.
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

    /// Waits for upkeep where the log has next to no room left, or the memory of the index. Before locks are taken: who cleans takes
    /// those of other keys.
    pub(crate) async fn relieve(&self) {
        self.relieve_memory().await;
        self.relieve_log().await;
    }

    async fn relieve_memory(&self) {
        // Where checkpoints fail one after the other upkeep tries them, and a commit refuses what grows: not every writer tries one too.
        if !self.machine.is_memory_full() || self.machine.is_stuck() {
            return;
        }
        if let Err(error) = self.checkpoint_if(Machine::is_memory_full).await {
            tracing::warn!(%error, "no checkpoint could be made where the index has no more memory");
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

    /// Whether objects that are kept in zones will need room that there is, but for what is dead in them.
    pub(crate) fn wants_cleaning(&self) -> bool {
        let aimed = ZONES_AIMED.min(self.machine.geometry.zones() / PART_AIMED);
        lock(&self.machine.space).free_zones() < self.machine.zones_reserved() + aimed
    }

    /// Empties the zone that is most worth it; `false` if that would win less than this part of a zone.
    pub(crate) async fn clean_one(&self, won_min: u64) -> Result<bool> {
        let mut found = self.worth_cleaning(won_min);
        if found.is_none() && self.machine.is_dirty() {
            // What the log needs may be cleaned when the log has begun anew.
            self.blocking(|machine| machine.checkpoint()).await?;
            found = self.worth_cleaning(won_min);
        }
        let Some((zone, entry)) = found else { return Ok(false) };
        self.clean(zone, entry).await
    }

    /// The zone that most would be won of, unless that is less than this part of a zone.
    fn worth_cleaning(&self, won_min: u64) -> Option<(u64, Zone)> {
        let won_bytes_min = self.machine.geometry.zone_bytes() / won_min;
        let worth_most = lock(&self.machine.space).worth_most();
        worth_most.filter(|(_, entry)| entry.won_bytes() >= won_bytes_min)
    }

    /// Empties a zone, as far as it can be read; `false` if nothing was won.
    async fn clean(&self, zone: u64, entry: Zone) -> Result<bool> {
        let cleaned = self.move_pieces_of(zone, entry).await;
        match cleaned {
            Err(error) if error.is_damage() && self.machine.check_writable().is_ok() => {
                tracing::warn!(zone, %error, "a zone cannot be cleaned and is left as it is: scrub the drive");
                lock(&self.machine.space).leave_uncleaned(zone);
                Ok(true)
            }
            cleaned => cleaned,
        }
    }

    async fn move_pieces_of(&self, zone: u64, entry: Zone) -> Result<bool> {
        let zone_bytes = self.machine.geometry.zone_bytes();
        tracing::debug!(zone, live_bytes = entry.live_bytes, "a zone is cleaned");
        // It is not given out while it is read, though nothing of it be alive any more.
        let mut pins = Pins::new(&self.machine.space);
        pins.zone(zone);
        let (mut at, mut moved_bytes) = (0, 0);
        let before = self.machine.log_grown();
        while at < entry.used_bytes {
            let found =
                self.blocking(move |machine| machine.pieces_of_frames(zone, at, entry.used_bytes)).await?;
            let moves =
                found.pieces.into_iter().map(|(key, record, bytes)| self.move_piece(key, record, bytes));
            // At once, so that they share frames: one frame for each would win nothing where objects are small.
            moved_bytes += try_join_all(moves).await?.into_iter().sum::<u64>();
            at = found.next;
        }
        drop(pins);
        let left = lock(&self.machine.space).zones().find(|&(left, _)| left == zone);
        // Nothing may be won where the ends of frames and zones take what was dead: who goes on while there is something to win shall end.
        let log_bytes = self.machine.log_grown().since(&before).log_bytes_of(moved_bytes);
        let is_won = log_bytes + zone_bytes / WON_LEAST <= zone_bytes;
        Ok(is_won && left.is_none_or(|(_, left)| left.live_bytes < entry.live_bytes))
    }

    /// Writes a piece anew, if it is still its object's; how many bytes of the log that takes.
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

/// An object's key and record as a frame has them, and its bytes.
type Found = (IndexKey, ObjectRecord, Bytes);

/// What frames that follow each other have.
struct Pieces {
    pieces: Vec<Found>,
    /// Where in its zone the frame after them begins.
    next: u64,
}

impl Machine {
    /// The objects whose bytes the frames from a place of a zone on have, as many as are moved at once.
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

    /// The objects that still lie in the frame at this place of a zone, and the frame's length in bytes.
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
