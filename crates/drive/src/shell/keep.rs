//! Upkeep: checkpoints, compaction and cleaning, when it is time for them.

use super::{Drive, Shell, decoded};
use crate::error::{Error, Result};
use crate::format::{Body, Change, Head, IndexKey, Kind, ObjectRecord, Piece};
use crate::machine::{Checked, LogReader, Prepared};
use crate::space::{Pins, ZONES_RESERVED, Zone, lock};
use bytes::Bytes;
use futures_util::future::try_join_all;
use std::sync::Arc;

/// Zones are cleaned while fewer than so many more than the reserved ones are free.
const ZONES_AIMED: u64 = 2 * ZONES_RESERVED;

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

    /// Makes a checkpoint, so that the next opening need not read the log.
    pub async fn close(&self) -> Result<()> {
        let _one_at_a_time = self.0.keeping.lock().await;
        self.0.blocking(|core| if core.is_dirty() { core.checkpoint() } else { Ok(()) }).await
    }

    /// Compares the index with the space, block by block, and reads all of the index; not the objects.
    pub async fn check(&self) -> Result<Checked> {
        self.0.blocking(|core| core.check()).await
    }
}

impl Shell {
    /// Does what upkeep there is to do now.
    pub(crate) async fn maintain(&self) -> Result<()> {
        let _one_at_a_time = self.keeping.lock().await;
        if self.core.wants_checkpoint() {
            self.blocking(|core| core.checkpoint()).await?;
        }
        let compacted = self.compact().await;
        while self.wants_cleaning() && self.clean_one(WON_MIN).await? {}
        compacted
    }

    async fn compact(&self) -> Result<()> {
        while self.blocking(|core| core.compact()).await? {
            self.blocking(|core| core.checkpoint()).await?;
        }
        Ok(())
    }

    /// Waits for upkeep where the log has next to no room left. Before locks are taken: who cleans takes those of other keys.
    pub(crate) async fn relieve(&self) {
        let is_needed = || lock(&self.core.space).free_zones() < ZONES_RESERVED / 2;
        if !is_needed() {
            return;
        }
        let _one_at_a_time = self.keeping.lock().await;
        while is_needed() && matches!(self.clean_one(WON_LEAST).await, Ok(true)) {}
    }

    /// Whether objects that are kept in zones will need room that there is, but for what is dead in them.
    pub(crate) fn wants_cleaning(&self) -> bool {
        lock(&self.core.space).free_zones() < self.core.zones_reserved() + ZONES_AIMED
    }

    /// Empties the zone that has the least alive; `false` if that would win less than this part of a zone.
    pub(crate) async fn clean_one(&self, won_min: u64) -> Result<bool> {
        let zone_bytes = self.core.geometry.zone_bytes();
        let most_dead = || lock(&self.core.space).most_dead();
        let is_worth_it = |entry: &Zone| entry.used_bytes - entry.live_bytes >= zone_bytes / won_min;
        let mut found = most_dead().filter(|(_, entry)| is_worth_it(entry));
        if found.is_none() && self.core.is_dirty() {
            // What the log needs may be cleaned when the log has begun anew.
            self.blocking(|core| core.checkpoint()).await?;
            found = most_dead().filter(|(_, entry)| is_worth_it(entry));
        }
        let Some((zone, entry)) = found else { return Ok(false) };
        tracing::debug!(zone, live_bytes = entry.live_bytes, "a zone is cleaned");
        // It is not given out while it is read, though nothing of it be alive any more.
        let mut pins = Pins::new(&self.core.space);
        pins.zone(zone);
        let mut at = 0;
        while at < entry.used_bytes {
            let found = self.blocking(move |core| core.pieces_of_frames(zone, at, entry.used_bytes)).await?;
            let moves =
                found.pieces.into_iter().map(|(key, record, bytes)| self.move_piece(key, record, bytes));
            // At once, so that they share frames: one frame for each would win nothing where objects are small.
            try_join_all(moves).await?;
            at = found.next;
        }
        drop(pins);
        let left = lock(&self.core.space).zones().find(|&(left, _)| left == zone);
        Ok(left.is_none_or(|(_, left)| left.live_bytes < entry.live_bytes))
    }

    /// Writes a piece anew, if it is still its object's.
    async fn move_piece(&self, key: IndexKey, stored: ObjectRecord, bytes: Bytes) -> Result<()> {
        let Some((bucket, object)) = key.owner() else { return Ok(()) };
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
            let small = Some(crate::machine::Small { key, record, bytes: vec![bytes] });
            let changes = vec![Change::Dead { at, len }];
            let prepared = Prepared { small, changes, locks, is_upkeep: true, ..Prepared::default() };
            return self.commit(prepared).await;
        }
        Ok(())
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

impl crate::machine::Machine {
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
        let len_bytes = frame.header.len_bytes();
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
