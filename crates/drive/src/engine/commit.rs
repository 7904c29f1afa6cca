//! Commit: makes several changes durable by one write and one flush, and then visible.

use super::{Engine, Log};
use crate::device::Buffer;
use crate::error::{Error, Result};
use crate::format::{
    Body, Change, FRAME_HEADER_BYTES, FrameHeader, FrameWriter, IndexKey, ObjectRecord, RunSlice, blocks_of,
};
use crate::index::ENTRY_BYTES;
use crate::space::{DELETION_ZONES, Hold, Space, lock};
use bytes::Bytes;
use std::sync::atomic::Ordering;

/// The most bytes of a change's encoded lengths and numbers, apart from its key and value.
const CHANGE_BYTES: u64 = 32;

/// The effect of a change on the space. As space runs out, `Grows` is refused first, then `Moves`: each leaves the room that the
/// purposes above it may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Purpose {
    /// Removes data. Never refused for lack of space.
    Frees,
    /// Moves data so that space becomes free, or adds a delete marker, which takes little.
    Moves,
    /// Adds data.
    #[default]
    Grows,
}

/// Changes that commit together or not at all.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    /// Objects whose bytes go into the frame, each with its own key.
    pub(crate) inline_puts: Vec<InlinePut>,
    pub(crate) changes: Vec<Change>,
    /// Guards to keep until the commit is done. They cover runs named by the changes, whose data is written but not flushed.
    pub(crate) holds: Vec<Hold>,
    pub(crate) purpose: Purpose,
    /// Cached bytes that get the number of their write.
    pub(crate) rekeys: Vec<CacheRekey>,
    /// Writes whose bytes are no longer in use, and their bodies: their cached bytes can be dropped.
    pub(crate) dropped: Vec<(u64, Body)>,
}

/// Bytes of runs that are cached under other numbers, and get the number of a write when that is committed.
#[derive(Debug)]
pub(crate) struct CacheRekey {
    pub(crate) write: u64,
    pub(crate) slices: Vec<RunSlice>,
    /// The numbers the bytes are cached under, each with the number of runs it applies to, in order. 0: the bytes are not cached.
    pub(crate) old_numbers: Vec<(u64, usize)>,
}

/// An object whose bytes go into the frame.
#[derive(Debug)]
pub(crate) struct InlinePut {
    pub(crate) key: IndexKey,
    /// A record with an inline body. The commit sets the position in it.
    pub(crate) record: ObjectRecord,
    pub(crate) bytes: Bytes,
    /// The most bytes it takes in a frame.
    frame_bytes: u64,
}

impl Prepared {
    pub(crate) fn is_empty(&self) -> bool {
        self.inline_puts.is_empty() && self.changes.is_empty()
    }

    /// Adds a committed owner of the body. Its bytes are cached under these numbers ([`CacheRekey::old_numbers`]).
    pub(crate) fn retain(&mut self, write: u64, body: &Body, old_numbers: Vec<(u64, usize)>) {
        if let Body::Runs(slices) = body {
            self.changes.extend(slices.iter().map(|slice| Change::Retain(slice.run)));
            debug_assert_eq!(old_numbers.iter().map(|(_, runs)| runs).sum::<usize>(), slices.len());
            self.rekeys.push(CacheRekey { write, slices: slices.clone(), old_numbers });
        }
    }

    /// Removes a committed record as an owner of its body.
    pub(crate) fn release(&mut self, record: &ObjectRecord) {
        self.dropped.push((record.write, record.body.clone()));
        match &record.body {
            Body::Inline(inline) => self.changes.push(Change::Dead { at: inline.at, len: inline.len }),
            Body::Runs(slices) => {
                self.changes.extend(slices.iter().map(|slice| Change::Release(slice.run)));
            }
            Body::DeleteMarker => {}
        }
    }

    /// Adds all of another set of changes.
    pub(crate) fn extend(&mut self, other: Self) {
        self.inline_puts.extend(other.inline_puts);
        self.changes.extend(other.changes);
        self.holds.extend(other.holds);
        self.purpose = self.purpose.max(other.purpose);
        self.rekeys.extend(other.rekeys);
        self.dropped.extend(other.dropped);
    }

    /// Refuses entries that are too long for a table of the index, as every later checkpoint would fail.
    pub(crate) fn check_lengths(&self) -> Result<()> {
        let is_too_long = |change: &Change| match change {
            Change::Put { key, value } => key.len() > sst::KEY_LEN_MAX || value.len() > sst::VALUE_LEN_MAX,
            _ => false,
        };
        match self.changes.iter().any(is_too_long) {
            true => Err(Error::Unsuitable(
                "the object is too fragmented for the index: store it again, or delete other objects first"
                    .into(),
            )),
            false => Ok(()),
        }
    }

    /// Returns the most bytes that the changes take in a frame.
    pub(crate) fn frame_bytes(&self) -> u64 {
        let inline_puts: u64 = self.inline_puts.iter().map(|put| put.frame_bytes).sum();
        inline_puts + self.changes.iter().map(change_bytes).sum::<u64>()
    }

    /// Returns the approximate bytes that the changes add to the memtable.
    fn index_bytes(&self) -> u64 {
        let entries = (self.changes.len() + self.inline_puts.len()) as u64;
        let inline_bytes: u64 = self.inline_puts.iter().map(|put| put.record.body.len_bytes()).sum();
        self.frame_bytes() - inline_bytes + entries * ENTRY_BYTES as u64
    }
}

impl InlinePut {
    pub(crate) fn new(key: IndexKey, record: ObjectRecord, bytes: Bytes) -> Self {
        let entry = key.0.len() + record.encode().len();
        let frame_bytes = record.body.len_bytes() + entry as u64 + CHANGE_BYTES;
        Self { key, record, bytes, frame_bytes }
    }

    /// Returns the write number and the bytes.
    pub(crate) fn write_and_bytes(&self) -> (u64, Bytes) {
        (self.record.write, self.bytes.clone())
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

/// The demands of a batch on the space.
struct SpaceDemand {
    purpose: Purpose,
    /// Whether the batch writes bytes of objects. Then its zone is not free after the next checkpoint.
    has_inline: bool,
    /// The bytes that the batch adds to the memtable.
    index_bytes: u64,
}

impl SpaceDemand {
    fn of(batch: &[Prepared]) -> Self {
        let purpose = batch.iter().map(|prepared| prepared.purpose).max().unwrap_or_default();
        let has_inline = batch.iter().any(|prepared| !prepared.inline_puts.is_empty());
        Self { purpose, has_inline, index_bytes: batch.iter().map(Prepared::index_bytes).sum() }
    }

    /// Returns whether the index still has room for a checkpoint after this batch, plus what the purpose must leave. Deleting everything in
    /// the index takes about as many bytes as the index has.
    fn is_admissible(&self, space: &Space, index_bytes: u64) -> bool {
        let left = match self.purpose {
            Purpose::Frees => 0,
            Purpose::Moves => index_bytes / 2,
            Purpose::Grows => index_bytes,
        };
        space.has_room_for_index(blocks_of(left))
    }
}

/// The position of a new frame.
struct FramePlace {
    /// Bytes from the device's beginning.
    at: u64,
    /// Bytes from the zone's beginning.
    in_zone: u64,
    next_zone: u64,
    /// Whether the frame is the first in the log's next zone.
    advances: bool,
}

impl Engine {
    /// Makes all changes durable, then visible. After [`Error::Full`] (the log has no room) or [`Error::IndexUnwritable`] (the index cannot grow)
    /// nothing has changed, and the batch is as it was.
    pub(crate) fn commit(&self, batch: &mut Vec<Prepared>) -> Result<()> {
        self.check_writable()?;
        let demand = SpaceDemand::of(batch);
        if demand.purpose != Purpose::Frees && self.is_index_unwritable() {
            return Err(Error::IndexUnwritable("checkpoints fail one after the other".into()));
        }
        let mut log = self.lock_log();
        let len_bytes_max = FRAME_HEADER_BYTES as u64 + batch.iter().map(Prepared::frame_bytes).sum::<u64>();
        let place = self.place(&log, len_bytes_max, &demand)?;
        let memory = self.buffers.fill(len_bytes_max as usize, self.geometry.row_bytes());
        let mut frame = FrameWriter::new(place.at, memory);
        let mut changes = Vec::new();
        let mut held = Vec::new();
        for prepared in batch.drain(..) {
            for put in prepared.inline_puts {
                changes.push(encode_inline(&mut frame, put));
            }
            changes.extend(prepared.changes);
            held.push(prepared.holds);
        }
        if !self.can_apply(&changes) {
            // Once written, a frame that contradicts the space could never be replayed: the drive could not be opened again.
            let what =
                "the changes contradict the state of the space and were not written: run 'tenon drive check'";
            return Err(self.fail(Error::Unsuitable(what.into())));
        }
        changes.iter().for_each(|change| frame.change(change));
        let last_write = self.last_write.load(Ordering::Relaxed);
        let (rows, header) = frame.finish(self.drive, log.next_frame, place.next_zone, last_write);
        let names_runs = changes.iter().any(|change| matches!(change, Change::Retain(_)));
        if let Err(error) = self.write_frame(&place, &rows, names_runs) {
            // The frame may be on the device all the same, so the blocks it names must not be allocated until the drive is opened again.
            std::mem::forget(held);
            return Err(self.fail(error));
        }
        self.record_frame(&mut log, &place, &header);
        let applied = self.apply(changes);
        drop(held);
        match applied {
            true => Ok(()),
            false => {
                Err(self
                    .fail(Error::damaged("a frame of the log, which contradicts earlier frames,", place.at)))
            }
        }
    }

    fn place(&self, log: &Log, len_bytes_max: u64, demand: &SpaceDemand) -> Result<FramePlace> {
        let zone_bytes = self.geometry.zone_bytes();
        if len_bytes_max > zone_bytes {
            return Err(Error::Unsuitable(format!("a change of {len_bytes_max} bytes is longer than a zone")));
        }
        let advances = log.head_at + len_bytes_max > zone_bytes;
        let index_bytes = self.index_bytes();
        let zones_reserved = self.zones_reserved_beside(index_bytes);
        let mut space = lock(&self.space);
        self.reserve_for_checkpoint(&mut space, demand.index_bytes);
        if !demand.is_admissible(&space, index_bytes) {
            return Err(Error::Full);
        }
        if demand.has_inline && space.log_zones_left() < DELETION_ZONES + u64::from(advances) {
            return Err(Error::Full);
        }
        if !advances {
            let at = self.geometry.zone_at(space.head_zone()) + log.head_at;
            return Ok(FramePlace {
                at,
                in_zone: log.head_at,
                next_zone: space.next_zone(),
                advances: false,
            });
        }
        // Several writers may have passed `has_room_for` with the same free zone, so this check is more lenient by one zone.
        if demand.has_inline && demand.purpose == Purpose::Grows && space.free_zones() < zones_reserved {
            return Err(Error::Full);
        }
        let next_zone = space.take_zone()?;
        let at = self.geometry.zone_at(space.next_zone());
        Ok(FramePlace { at, in_zone: 0, next_zone, advances: true })
    }

    /// Writes a frame. The data of its runs is flushed first, so that no frame refers to data that is not durable.
    fn write_frame(&self, place: &FramePlace, rows: &Buffer, names_runs: bool) -> Result<()> {
        if names_runs {
            self.flush(place.at)?;
        }
        self.device.write_at(place.at, rows).map_err(Error::device(place.at))?;
        self.flush(place.at)
    }

    fn record_frame(&self, log: &mut Log, place: &FramePlace, header: &FrameHeader) {
        let len_bytes = self.geometry.frame_bytes(header);
        let mut space = lock(&self.space);
        if place.advances {
            space.advance(place.next_zone);
            log.growth.log_bytes += self.geometry.zone_bytes() - log.head_at;
        }
        log.growth.log_bytes += len_bytes;
        log.growth.content_bytes += header.content_bytes();
        log.head_at = place.in_zone + len_bytes;
        log.bytes_since_checkpoint += len_bytes;
        space.record_frame(header, log.head_at);
        log.next_frame += 1;
    }

    /// Returns whether the space admits these changes. Nothing is changed.
    pub(super) fn can_apply(&self, changes: &[Change]) -> bool {
        lock(&self.space).can_apply(changes)
    }

    /// Applies changes to the index first, then to the space: a reader that has pinned blocks looks at the index again to see whether they
    /// still belong to the entry. Returns false if the changes contradict the space.
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
            Change::Dead { at, len } => space.mark_dead(at, len),
            Change::Put { .. } | Change::Delete { .. } => true,
        });
        space.free_dead_zones();
        fits
    }
}

fn encode_inline(frame: &mut FrameWriter, put: InlinePut) -> Change {
    let InlinePut { key, mut record, bytes, frame_bytes } = put;
    let at = frame.push_inline(&bytes, frame_bytes - bytes.len() as u64);
    if let Body::Inline(inline) = &mut record.body {
        inline.at = at;
    }
    Change::Put { key: key.0, value: record.encode() }
}
