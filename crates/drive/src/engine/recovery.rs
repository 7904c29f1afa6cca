//! Recovery: replays the frames that follow the checkpoint, and makes the recovered state durable.

use super::Engine;
use super::root::{holds_superblock, write_superblock};
use crate::device::Buffer;
use crate::error::{Error, Result};
use crate::format::{Body, Change, FRAME_HEADER_BYTES, Frame, IndexKey, Manifest, NUMBER_END, ObjectRecord};
use crate::log::{FramePlace, FrameReader, LaterFrame, LogState};
use crate::space::lock;
use std::sync::atomic::Ordering;

/// Free zones whose beginnings are searched for a continuation of the log behind an unreadable frame.
const ZONES_SEARCHED: usize = 16;

/// The outcome of a replay of the log.
#[derive(Debug, Default)]
pub(super) struct ReplayOutcome {
    /// The last frame; `None` if there is none.
    pub(super) last: Option<LastFrame>,
    /// The damage that ended the replay before the log's end.
    pub(super) loss: Option<String>,
}

/// The bytes of a frame as they were found intact. If a power cut has interrupted the write of the frame, another read may give others.
#[derive(Debug)]
pub(super) struct LastFrame {
    /// Position in bytes from the device's beginning.
    at: u64,
    content: Vec<u8>,
}

/// A replay of the log.
pub(super) struct Recovery<'a> {
    engine: &'a Engine,
    reader: FrameReader,
    /// Whether damage ends the replay, instead of making it fail.
    ends_at_damage: bool,
}

impl<'a> Recovery<'a> {
    pub(super) fn new(engine: &'a Engine, ends_at_damage: bool) -> Self {
        let reader = FrameReader::new(engine.device().clone(), engine.drive, engine.geometry);
        Self { engine, reader, ends_at_damage }
    }

    /// Replays the frames that follow the checkpoint. Damage before the log's end is an error or, if `ends_at_damage`,
    /// a loss.
    pub(super) fn replay(&mut self) -> Result<ReplayOutcome> {
        let engine = self.engine;
        let mut log = engine.log.lock();
        let mut replayed = ReplayOutcome::default();
        while let Some((frame, place)) = self.next_frame(&log)? {
            let len_bytes = frame.header.len_bytes();
            match self.redo(&mut log, frame, place) {
                Ok(()) => {
                    let content = self.reader.frame_bytes(place.at, len_bytes).to_vec();
                    replayed.last = Some(LastFrame { at: place.at, content });
                }
                Err(error) if self.ends_at_damage => {
                    let loss = format!("{error}: the changes of this and all later frames are left out");
                    replayed.loss = Some(loss);
                    return Ok(replayed);
                }
                Err(error) => return Err(error),
            }
        }
        let later = self.later_frame(&log)?;
        replayed.loss = later.map(|later| self.report_damage(&log, later)).transpose()?;
        Ok(replayed)
    }

    /// Returns the next frame, which lies behind the last one or at the beginning of the log's next zone; `None` if
    /// neither place has an intact frame with the next number.
    fn next_frame(&mut self, log: &LogState) -> Result<Option<(Frame, FramePlace)>> {
        for (zone, in_zone, advances) in self.engine.continuations(log) {
            let frame = self.reader.frame(zone, in_zone).right_or_wrong()?;
            if let Some(frame) = frame.filter(|frame| frame.header.number == log.next_frame) {
                let (at, next_zone) = (self.engine.geometry.zone_at(zone) + in_zone, frame.header.next_zone);
                return Ok(Some((frame, FramePlace { at, in_zone, next_zone, advances })));
            }
        }
        Ok(None)
    }

    /// Replays a frame. Fails if the frame contradicts earlier ones.
    fn redo(&self, log: &mut LogState, frame: Frame, place: FramePlace) -> Result<()> {
        let Frame { header, changes } = frame;
        let is_next_zone_free = !place.advances || lock(&self.engine.space).claim_zone(place.next_zone);
        self.engine.record_frame(log, &place, &header);
        self.engine.last_write.fetch_max(header.last_write, Ordering::Relaxed);
        let fits = is_next_zone_free
            && header.last_write < NUMBER_END
            && has_inline_data_of(&changes, &place, u64::from(header.inline_bytes));
        if !(fits && self.engine.can_apply(&changes) && self.engine.apply(changes)) {
            return Err(Error::damaged("a frame of the log, which contradicts earlier frames,", place.at));
        }
        Ok(())
    }

    /// Searches for an intact frame behind the apparent end of the log. At the true end there is none, because a frame is written only when
    /// all before it are durable. A later frame lies behind the end in the same zone, or in the next zone. If the first frame of the next
    /// zone was longer than half of the zone, a later frame may also lie in the zone after, one of the last that were free then.
    fn later_frame(&mut self, log: &LogState) -> Result<Option<LaterFrame>> {
        for (zone, from, _) in self.engine.continuations(log) {
            if let Some(later) = self.reader.later_frame(zone, from, log.next_frame)? {
                return Ok(Some(later));
            }
        }
        let zones = lock(&self.engine.space).last_free_zones(ZONES_SEARCHED);
        for zone in zones {
            if let Some(later) = self.reader.later_frame_at_start(zone, log.next_frame)? {
                return Ok(Some(later));
            }
        }
        Ok(None)
    }

    /// Reports that the log continues behind an unreadable frame: as an error, or as a loss.
    fn report_damage(&self, log: &LogState, later: LaterFrame) -> Result<String> {
        let head = lock(&self.engine.space).log_zones().head();
        let at = self.engine.geometry.zone_at(head) + log.head_at;
        tracing::error!(
            frame = log.next_frame,
            at,
            later = later.number,
            later_at = later.at,
            "a frame of the log is damaged, and later frames follow: the commits from the damaged frame on cannot be read"
        );
        if !self.ends_at_damage {
            return Err(Error::damaged("a frame of the log", at));
        }
        let commits = (later.number + 1).saturating_sub(log.next_frame);
        Ok(format!(
            "damaged: frame {} of the log at byte {at}; at least {commits} commits from there on are left out; frame {} at {} is intact",
            log.next_frame, later.number, later.at
        ))
    }
}

/// Returns whether all inline data that the changes place in this frame lies in the frame's inline data. Paired with the commit, which
/// sets the positions.
fn has_inline_data_of(changes: &[Change], place: &FramePlace, inline_bytes: u64) -> bool {
    let begins = place.at + FRAME_HEADER_BYTES as u64;
    let is_inside = |change: &Change| {
        let Change::Put { key, value } = change else { return true };
        let is_object = IndexKey::is_object_or_version(key);
        let Some(record) = is_object.then(|| ObjectRecord::decode(value)).flatten() else { return true };
        match record.body {
            Body::Inline(inline) if inline.at >= begins && inline.at < begins + inline_bytes => {
                inline.at + u64::from(inline.len) <= begins + inline_bytes
            }
            _ => true,
        }
    };
    changes.iter().all(is_inside)
}

impl Engine {
    /// Makes the recovered state durable. It may come from writes whose flush failed or never happened, and a later flush does not make
    /// them durable. So they are written again. Among frames this applies only to the last, as it was written when all before it were
    /// durable. Among superblocks it applies to either copy: the copy that is not in force is written first, so that an intact one that is
    /// in force exists at any time.
    pub(super) fn make_recovered_durable(&self, last: Option<LastFrame>) -> Result<()> {
        if let Some(LastFrame { at, content }) = last {
            let row_bytes = self.geometry.row_bytes() as usize;
            let mut rows = Buffer::zeroed(content.len().next_multiple_of(row_bytes));
            // The rest of the last row is padding.
            rows[..content.len()].copy_from_slice(&content);
            self.device.write(at, &rows)?;
        }
        self.clear_unfinished_frame()?;
        let superblock = self.root.lock().superblock.clone();
        let mut copies = [0, 1];
        copies.sort_by_key(|&copy| holds_superblock(&**self.device(), copy, &superblock));
        write_superblock(&self.device, &superblock, copies)
    }

    /// Clears the rows at which the log may continue, on an array. A power cut may have left parts of a frame there: other devices of the
    /// array could give a whole frame at a later opening, and its changes would appear only then.
    fn clear_unfinished_frame(&self) -> Result<()> {
        if !self.device().has_redundancy() {
            return Ok(());
        }
        let continuations = self.continuations(&self.log.lock());
        for (zone, from, _) in continuations {
            let at = self.geometry.zone_at(zone) + from;
            let mut row = Buffer::zeroed(self.geometry.row_bytes() as usize);
            let is_inside = from < self.geometry.zone_bytes();
            // A row that cannot be read now may be a whole frame. A row of zeros may have another content on the other devices.
            if is_inside && self.device().read_at(at, &mut row).is_ok() {
                row.fill(0);
                self.device.write(at, &row)?;
            }
        }
        Ok(())
    }

    /// Returns where the log may continue: a zone, bytes from its beginning, and whether it is the next zone.
    fn continuations(&self, log: &LogState) -> [(u64, u64, bool); 2] {
        let space = lock(&self.space);
        let zones = space.log_zones();
        [(zones.head(), log.head_at, false), (zones.next(), 0, true)]
    }

    /// Reserves the blocks of tables and manifest, which the manifest lists as free. Fails if some are in use.
    pub(super) fn claim_index(&self, manifest: &Manifest) -> Result<()> {
        let own = self.root.lock().superblock.manifest;
        let of_tables = manifest.tables.iter().flat_map(|table| &table.runs);
        let mut space = lock(&self.space);
        for &run in of_tables.chain([&own]) {
            if !space.reserve_for_open(run) {
                return Err(Error::damaged("the manifest, which uses some blocks twice,", own.at()));
            }
        }
        Ok(())
    }
}
