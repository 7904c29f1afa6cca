//! Commit: several changes become durable by one write and one flush, and are then seen.

use super::{Log, Machine};
use crate::device::Buffer;
use crate::error::{Error, Result};
use crate::format::{Body, Change, FRAME_HEADER_BYTES, FrameWriter, IndexKey, ObjectRecord};
use crate::shell::Held;
use crate::space::{Hold, ZONES_RESERVED, lock};
use bytes::Bytes;
use std::sync::atomic::Ordering;

/// What a change of lengths and numbers takes at most, beside its bytes.
const CHANGE_BYTES: u64 = 32;

/// Changes that happen together or not at all.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    /// An object whose bytes go into the frame.
    pub(crate) small: Option<Small>,
    pub(crate) changes: Vec<Change>,
    /// Held until it is done: runs that the changes name, whose data is written, but not flushed.
    pub(crate) holds: Vec<Hold>,
    /// Held until it is done: locks of what is changed.
    pub(crate) locks: Vec<Held>,
    /// Whether it moves what is there, so that space becomes free.
    pub(crate) is_upkeep: bool,
}

/// An object whose bytes go into the frame.
#[derive(Debug)]
pub(crate) struct Small {
    pub(crate) key: IndexKey,
    /// Its body is a piece that has its length and sums; where it lies is written here.
    pub(crate) record: ObjectRecord,
    pub(crate) bytes: Vec<Bytes>,
}

impl Prepared {
    pub(crate) fn is_empty(&self) -> bool {
        self.small.is_none() && self.changes.is_empty()
    }

    /// Whether it takes space of the log that is not won back soon.
    fn takes_space(&self) -> bool {
        self.small.is_some() && !self.is_upkeep
    }

    /// A committed record more names this body.
    pub(crate) fn retain(&mut self, body: &Body) {
        if let Body::Extents(extents) = body {
            self.changes.extend(extents.iter().map(|extent| Change::Retain(extent.run)));
        }
    }

    /// A committed record less names this body.
    pub(crate) fn release(&mut self, body: &Body) {
        match body {
            Body::Piece(piece) => self.changes.push(Change::Dead { at: piece.at, len: piece.len }),
            Body::Extents(extents) => {
                self.changes.extend(extents.iter().map(|extent| Change::Release(extent.run)));
            }
            Body::Mark => {}
        }
    }

    /// At most so many bytes of a frame.
    pub(crate) fn frame_bytes(&self) -> u64 {
        let small = self.small.as_ref().map_or(0, Small::frame_bytes);
        small + self.changes.iter().map(change_bytes).sum::<u64>()
    }
}

impl Small {
    fn frame_bytes(&self) -> u64 {
        let entry = self.key.0.len() + self.record.encode().len();
        self.record.body.len_bytes() + entry as u64 + CHANGE_BYTES
    }
}

fn change_bytes(change: &Change) -> u64 {
    CHANGE_BYTES
        + match change {
            Change::Put { key, value } => (key.len() + value.len()) as u64,
            Change::Delete { key } => key.len() as u64,
            _ => 0,
        }
}

/// Where a frame is written.
struct Place {
    /// In bytes from the device's beginning.
    at: u64,
    /// In its zone, in bytes.
    in_zone: u64,
    next_zone: u64,
    /// Whether it is the first of the next zone.
    advances: bool,
}

impl Machine {
    /// Makes all of it durable, then seen. `Full` if the log has no room; then nothing happened, and the batch is as it was.
    pub(crate) fn commit(&self, batch: &mut Vec<Prepared>) -> Result<()> {
        self.check_writable()?;
        let mut log = self.log();
        let len_bytes_max = FRAME_HEADER_BYTES as u64 + batch.iter().map(Prepared::frame_bytes).sum::<u64>();
        let place = self.place(&log, len_bytes_max, batch.iter().any(Prepared::takes_space))?;
        let mut frame = FrameWriter::new(place.at, len_bytes_max as usize);
        let mut pieces_bytes = 0;
        let mut changes = Vec::new();
        let mut held = Vec::new();
        for prepared in batch.drain(..) {
            if let Some(small) = prepared.small {
                pieces_bytes += small.record.body.len_bytes();
                changes.push(put_small(&mut frame, small));
            }
            changes.extend(prepared.changes);
            held.push((prepared.holds, prepared.locks));
        }
        changes.iter().for_each(|change| frame.change(change));
        let bytes =
            frame.finish(self.drive, log.frame, place.next_zone, self.last_write.load(Ordering::Relaxed));
        let names_runs = changes.iter().any(|change| matches!(change, Change::Retain(_)));
        self.write_frame(&place, &bytes, names_runs).map_err(|error| self.fail(error))?;
        self.wrote(&mut log, &place, bytes.len() as u64, pieces_bytes);
        let applied = self.apply(changes);
        assert!(applied, "what is committed fits what is there");
        drop(held);
        Ok(())
    }

    fn place(&self, log: &Log, len_bytes_max: u64, takes_space: bool) -> Result<Place> {
        let mut space = lock(&self.space);
        let zone_bytes = self.geometry.zone_bytes();
        if len_bytes_max > zone_bytes {
            return Err(Error::Unfit(format!("a change of {len_bytes_max} bytes is longer than a zone")));
        }
        if log.at + len_bytes_max <= zone_bytes {
            let at = self.geometry.zone_at(space.head()) + log.at;
            return Ok(Place { at, in_zone: log.at, next_zone: space.next(), advances: false });
        }
        if takes_space && space.free_zones() + ZONES_RESERVED / 2 <= self.zones_reserved() {
            // Many may have found room at the same time.
            return Err(Error::Full);
        }
        let next_zone = space.take_zone()?;
        let at = self.geometry.zone_at(space.next());
        Ok(Place { at, in_zone: 0, next_zone, advances: true })
    }

    /// Data first, so that no frame is found that names what is not there.
    fn write_frame(&self, place: &Place, bytes: &[u8], names_runs: bool) -> Result<()> {
        let failed = Error::device(place.at);
        if names_runs {
            self.device.flush().map_err(&failed)?;
        }
        self.device.write_at(place.at, &Buffer::gathered([bytes])).map_err(&failed)?;
        self.device.flush().map_err(&failed)
    }

    fn wrote(&self, log: &mut Log, place: &Place, len_bytes: u64, pieces_bytes: u64) {
        let mut space = lock(&self.space);
        if place.advances {
            space.advance(place.next_zone);
        }
        log.at = place.in_zone + len_bytes;
        log.since_bytes += len_bytes;
        space.wrote(log.frame, log.at, pieces_bytes);
        log.frame += 1;
    }

    /// The index first, the space then: who holds on to blocks looks at the index again to see that they are still the entry's.
    /// `false` if that cannot be.
    pub(super) fn apply(&self, changes: Vec<Change>) -> bool {
        let mut of_space = Vec::new();
        for change in changes {
            match change {
                Change::Put { key, value } => self.index.insert(key, value),
                Change::Delete { key } => self.index.insert(key, Vec::new()),
                change => of_space.push(change),
            }
        }
        let mut space = lock(&self.space);
        let fits = of_space.into_iter().all(|change| match change {
            Change::Retain(run) => space.retain(run),
            Change::Release(run) => space.release(run),
            Change::Dead { at, len } => space.dead(at, len),
            Change::Put { .. } | Change::Delete { .. } => true,
        });
        space.free_dead_zones();
        fits
    }
}

fn put_small(frame: &mut FrameWriter, small: Small) -> Change {
    let Small { key, mut record, bytes } = small;
    let at = frame.piece(&bytes);
    if let Body::Piece(piece) = &mut record.body {
        piece.at = at;
    }
    Change::Put { key: key.0, value: record.encode() }
}
