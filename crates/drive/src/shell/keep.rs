//! Upkeep: checkpoints, compaction and cleaning, when it is time for them.

use super::{Drive, Shell, decoded};
use crate::core::{Checked, LogReader, Prepared};
use crate::error::{Error, Result};
use crate::format::{Body, Change, Head, IndexKey, ObjectRecord, Piece};
use crate::space::{ZONES_RESERVED, lock};
use bytes::Bytes;
use std::sync::Arc;

/// Zones are cleaned while fewer than so many times the reserved ones are free.
const ZONES_AIMED: u64 = 3 * ZONES_RESERVED;

/// A zone of which more than so many parts of eight are alive is not worth cleaning.
const LIVE_EIGHTHS_MAX: u64 = 7;

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
        while self.blocking(|core| core.compact()).await? {
            self.blocking(|core| core.checkpoint()).await?;
        }
        while self.wants_cleaning() && self.clean_one().await? {}
        Ok(())
    }

    /// Whether objects that are kept in zones will need room that there is, but for what is dead in them.
    pub(crate) fn wants_cleaning(&self) -> bool {
        lock(&self.core.space).free_zones() < ZONES_AIMED
    }

    /// Empties the zone that has the least alive; `false` if that would win nothing.
    pub(crate) async fn clean_one(&self) -> Result<bool> {
        let zone_bytes = self.core.geometry.zone_bytes();
        let most_dead = || lock(&self.core.space).most_dead();
        let worth = |live_bytes: u64| live_bytes <= zone_bytes / 8 * LIVE_EIGHTHS_MAX;
        let mut found = most_dead().filter(|(_, entry)| worth(entry.live_bytes));
        if found.is_none() && self.core.is_dirty() {
            // What the log needs may be cleaned when the log has begun anew.
            self.blocking(|core| core.checkpoint()).await?;
            found = most_dead().filter(|(_, entry)| worth(entry.live_bytes));
        }
        let Some((zone, entry)) = found else { return Ok(false) };
        tracing::debug!(zone, live_bytes = entry.live_bytes, "a zone is cleaned");
        let mut at = 0;
        while at < entry.used_bytes {
            let (next, pieces) = self.blocking(move |core| core.pieces_of_frame(zone, at)).await?;
            for (key, record, bytes) in pieces {
                self.move_piece(key, record, bytes).await?;
            }
            at = next;
        }
        Ok(true)
    }

    /// Writes a piece anew, if it is still its object's.
    async fn move_piece(&self, key: IndexKey, stored: ObjectRecord, bytes: Bytes) -> Result<()> {
        let Some((bucket, object)) = key.owner() else { return Ok(()) };
        let _held = self.locks.hold(bucket, &object).await;
        for key in [key, IndexKey::version(bucket, &object, stored.write)] {
            let Some(mut record) = self.record(&key).await? else { continue };
            if record.body != stored.body {
                continue;
            }
            let Body::Piece(Piece { at, len, .. }) = record.body else { continue };
            if let Body::Piece(piece) = &mut record.body {
                piece.at = 0;
            }
            let small = Some(crate::core::Small { key, record, bytes: vec![bytes] });
            let changes = vec![Change::Dead { at, len }];
            return self.commit(Prepared { small, changes, ..Prepared::default() }).await;
        }
        Ok(())
    }
}

/// An object's key and record as a frame has them, and its bytes.
type Found = (IndexKey, ObjectRecord, Bytes);

impl crate::core::Core {
    /// Where in its zone the next frame begins, and the objects whose bytes this one has.
    fn pieces_of_frame(self: &Arc<Self>, zone: u64, at: u64) -> Result<(u64, Vec<Found>)> {
        let mut reader = LogReader::new(self.device.clone(), self.drive, self.geometry);
        let place = self.geometry.zone_at(zone) + at;
        let frame = reader.frame(zone, at)?.ok_or(Error::damaged("a frame of small objects", place))?;
        let len_bytes = frame.header.len_bytes();
        let mut pieces = Vec::new();
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
        Ok((at + len_bytes, pieces))
    }
}
