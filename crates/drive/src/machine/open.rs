//! Open: superblock, manifest, tables, and what the log says since.

use super::checkpoint::write_superblock;
use super::{Grown, Log, Machine, OpenOptions, Root};
use crate::device::{BLOCK_BYTES, BlockDevice, Buffer, Buffers, read_otherwise, read_right};
use crate::error::{Error, Result};
use crate::format::{
    DriveId, FRAME_HEADER_BYTES, Frame, FrameHeader, Geometry, Manifest, NUMBER_END, SUPERBLOCK_BYTES,
    Superblock, VERSION,
};
use crate::index::{Index, IndexTable, TableSource, of_table};
use crate::space::{SharedSpace, Space, lock};
use crate::wire::sum;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Where the log ends, so many zones are looked at into which it may have gone on behind a frame that cannot be read.
const ZONES_LOOKED_AT: usize = 16;

/// How much of the log is read at a time.
const WINDOW_BYTES: u64 = 4 << 20;

impl Machine {
    /// Opens a drive; at the end everything that was acknowledged is there, and nothing else of what was begun.
    pub(crate) fn open(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<Self> {
        let superblock = read_superblock(&*device)?;
        let manifest = read_manifest(&*device, &superblock)?;
        let (drive, geometry) = (superblock.drive, superblock.geometry);
        let space: SharedSpace = Arc::new(Mutex::new(Space::of(geometry, &manifest)));
        let cache = Arc::new(sst::Cache::new(options.index_bytes as u64 / 2));
        let mut tables = Vec::new();
        for (id, entry) in manifest.tables.iter().enumerate() {
            let source = TableSource::new(device.clone(), entry, space.clone());
            source.set_named(true);
            tables.push(Arc::new(IndexTable::open(source, id as u64, cache.clone()).map_err(of_table)?));
        }
        let frame = manifest.next_frame;
        let machine = Self {
            device,
            drive,
            geometry,
            space,
            last_table: AtomicU64::new(tables.len() as u64),
            index: Index::new(tables, cache),
            buffers: Buffers::new(options.buffers_kept_bytes()),
            options,
            log: Mutex::new(Log {
                frame,
                at: manifest.head_at,
                since: frame,
                since_bytes: 0,
                grown: Grown::default(),
            }),
            root: Mutex::new(Root { superblock, retiring: Vec::new() }),
            last_write: AtomicU64::new(manifest.last_write),
            failed: OnceLock::new(),
            flushing: Mutex::default(),
        };
        // As the end of the checkpoint did: the next frame may be in such a zone.
        lock(&machine.space).free_dead_zones();
        let last_frame = machine.replay()?;
        machine.claim_index(&manifest)?;
        lock(&machine.space).set_aside();
        if !options.read_only {
            machine.make_found_durable(last_frame)?;
        }
        Ok(machine)
    }

    /// What was found is from now on relied upon, and may be no safer than a write whose flush failed or never came: no later
    /// flush makes that safe. Of frames that can be the last only, as it was written when those before it were durable. Of the
    /// superblocks that can be either: the one that does not count is written first, so that a whole one that does is there all the time.
    fn make_found_durable(&self, last_frame: Option<(u64, u64)>) -> Result<()> {
        if let Some((at, len_bytes)) = last_frame {
            let mut frame = Buffer::zeroed(len_bytes as usize);
            // Nothing is written that is not what was found, or a device that is wrong would make all of them so.
            let is_right = |bytes: &[u8]| Frame::decode(self.drive, bytes).is_some();
            if !read_right(&*self.device, at, &mut frame, is_right).map_err(Error::device(at))? {
                return Err(Error::damaged("the last frame of the log", at));
            }
            self.device.write_at(at, &frame).map_err(Error::device(at))?;
        }
        let superblock = self.root().superblock.clone();
        let mut copies = [0, 1];
        copies.sort_by_key(|&copy| holds_superblock(&*self.device, copy, &superblock));
        write_superblock(&*self.device, &superblock, copies, |at| self.flush(at))
    }

    /// Where the last frame lies, in bytes, and its length; `None` if there is none.
    fn replay(&self) -> Result<Option<(u64, u64)>> {
        let mut log = self.log();
        let mut last = None;
        let mut reader = LogReader::new(self.device.clone(), self.drive, self.geometry);
        loop {
            let (head, next) = {
                let space = lock(&self.space);
                (space.head(), space.next())
            };
            let here = reader.frame(head, log.at)?.filter(|frame| frame.header.number == log.frame);
            let (frame, advances) = match here {
                Some(frame) => (frame, false),
                None => match reader.frame(next, 0)?.filter(|frame| frame.header.number == log.frame) {
                    Some(frame) => (frame, true),
                    None => {
                        self.check_end(&mut reader, &log, [(head, log.at), (next, 0)])?;
                        return Ok(last);
                    }
                },
            };
            let len_bytes = self.geometry.frame_bytes(&frame.header);
            let at = self.redo(&mut log, frame, advances)?;
            last = Some((at, len_bytes));
        }
    }

    /// Does again what a frame did; where it lies, in bytes.
    fn redo(&self, log: &mut Log, frame: Frame, advances: bool) -> Result<u64> {
        let Frame { header, changes } = frame;
        let mut space = lock(&self.space);
        let mut fits = true;
        if advances {
            fits = space.claim_zone(header.next_zone);
            space.advance(header.next_zone);
            log.at = 0;
        }
        let at = self.geometry.zone_at(space.head()) + log.at;
        let len_bytes = self.geometry.frame_bytes(&header);
        log.at += len_bytes;
        log.since_bytes += len_bytes;
        space.wrote(&header, log.at);
        drop(space);
        log.frame += 1;
        self.last_write.fetch_max(header.last_write, Ordering::Relaxed);
        fits &= header.last_write < NUMBER_END;
        if !(self.apply(changes) && fits) {
            return Err(Error::damaged("a frame of the log, which does not fit what came before it,", at));
        }
        Ok(at)
    }

    /// Where the log ends nothing follows: a later frame was written only when all before it were durable. What follows lies behind the
    /// end, in the next zone, or, where what opened that was longer than half of it, in the zone after: the last that were free then.
    fn check_end(&self, reader: &mut LogReader, log: &Log, places: [(u64, u64); 2]) -> Result<()> {
        for (zone, from) in places {
            if let Some(at) = reader.later_frame(zone, from, log.frame)? {
                tracing::error!(frame = log.frame, at, "the log goes on behind what cannot be read");
                let place = self.geometry.zone_at(places[0].0) + places[0].1;
                return Err(Error::damaged("a frame of the log", place));
            }
        }
        let zones = lock(&self.space).last_whole_zones(ZONES_LOOKED_AT);
        for zone in zones {
            if reader.opens_with_later(zone, log.frame)? {
                tracing::error!(
                    frame = log.frame,
                    zone,
                    "the log goes on in a zone behind what cannot be read"
                );
                return Err(Error::damaged("a frame of the log", self.geometry.zone_at(places[1].0)));
            }
        }
        Ok(())
    }

    /// The tables and the manifest have blocks that are free as far as objects go.
    fn claim_index(&self, manifest: &Manifest) -> Result<()> {
        let own = self.root().superblock.manifest;
        let of_tables = manifest.tables.iter().flat_map(|table| &table.runs);
        let mut space = lock(&self.space);
        for &run in of_tables.chain([&own]) {
            if !space.claim_loose(run) {
                return Err(Error::damaged("the manifest, two of whose blocks are the same,", own.at()));
            }
        }
        Ok(())
    }
}

fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let row_bytes = device.row_bytes();
    let mut rows = Buffer::zeroed(2 * row_bytes as usize);
    if device.len_bytes() < rows.len() as u64 {
        return Err(Error::Foreign("the device is too short".into()));
    }
    let (first, second) = rows.split_at_mut(row_bytes as usize);
    let mut failed = None;
    for (at, row) in [(0, &mut *first), (row_bytes, &mut *second)] {
        let is_whole = |row: &[u8]| Superblock::decode(&row[..SUPERBLOCK_BYTES as usize]).is_some();
        let read = read_right(device, at, row, is_whole);
        // What cannot be read is no copy, as what is torn is none: for that there are two.
        if let Err(error) = read.and_then(|is_right| if is_right { Ok(()) } else { device.read_at(at, row) })
        {
            row.fill(0);
            failed = Some(Error::device(at)(error));
        }
    }
    let (first, second) = (&first[..SUPERBLOCK_BYTES as usize], &second[..SUPERBLOCK_BYTES as usize]);
    let found = [first, second].into_iter().filter_map(Superblock::decode);
    let found = found.max_by_key(|superblock| superblock.generation);
    let found = found.ok_or_else(|| failed.unwrap_or_else(|| no_superblock([first, second])))?;
    if found.geometry.row_bytes() != row_bytes {
        return Err(Error::Unfit(format!(
            "the drive is written in rows of {} bytes, and the device of {row_bytes}: it was made of other devices",
            found.geometry.row_bytes(),
        )));
    }
    if found.geometry.blocks * BLOCK_BYTES > device.len_bytes() {
        return Err(Error::Unfit(format!(
            "the device was cut short: it has {} bytes, and the drive on it {}; give it its length back, or use a copy",
            device.len_bytes(),
            found.geometry.blocks * BLOCK_BYTES
        )));
    }
    Ok(found)
}

/// What these are instead of superblocks.
fn no_superblock(copies: [&[u8]; 2]) -> Error {
    if let Some(version) = copies.into_iter().find_map(Superblock::foreign_version) {
        return Error::Unfit(format!(
            "the drive is of version {version}, and this Tenon knows version {VERSION}: use the one that wrote it, or a newer one"
        ));
    }
    match copies.into_iter().any(Superblock::is_meant) {
        true => Error::damaged("both superblocks", 0),
        false => Error::Foreign("there is no superblock on the device".into()),
    }
}

/// Whether this copy of the superblock is this one.
fn holds_superblock(device: &dyn BlockDevice, copy: u64, superblock: &Superblock) -> bool {
    let mut block = Buffer::zeroed(SUPERBLOCK_BYTES as usize);
    let is_read = device.read_at(superblock.geometry.superblock_at(copy), &mut block).is_ok();
    is_read && Superblock::decode(&block).as_ref() == Some(superblock)
}

fn read_manifest(device: &dyn BlockDevice, superblock: &Superblock) -> Result<Manifest> {
    let at = superblock.manifest.at();
    let mut buffer = Buffer::zeroed(superblock.manifest.len_bytes() as usize);
    let len = superblock.manifest_bytes as usize;
    let is_right = |bytes: &[u8]| sum(&bytes[..len]) == superblock.manifest_sum;
    let is_whole = read_right(device, at, &mut buffer, is_right).map_err(Error::device(at))?;
    let manifest = is_whole.then(|| Manifest::decode(&buffer[..len])).flatten();
    manifest.filter(|manifest| manifest.fits(superblock.geometry)).ok_or(Error::damaged("the manifest", at))
}

/// Reads frames, many by one read.
#[derive(Debug)]
pub(crate) struct LogReader {
    device: Arc<dyn BlockDevice>,
    drive: DriveId,
    geometry: Geometry,
    window: Buffer,
    window_at: u64,
}

impl LogReader {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, drive: DriveId, geometry: Geometry) -> Self {
        Self { device, drive, geometry, window: Buffer::zeroed(0), window_at: 0 }
    }

    /// The frame at a place of a zone, if one begins there that is whole, in whichever way it is read.
    pub(crate) fn frame(&mut self, zone: u64, from: u64) -> Result<Option<Frame>> {
        match self.frame_as_it_is(zone, from)? {
            None if self.device.ways() > 0 => self.frame_otherwise(zone, from),
            frame => Ok(frame),
        }
    }

    /// A frame that is not what was written may be so if it is read otherwise. Its length is known only then.
    fn frame_otherwise(&mut self, zone: u64, from: u64) -> Result<Option<Frame>> {
        let (at, left) =
            (self.geometry.zone_at(zone) + from, self.geometry.zone_bytes().saturating_sub(from));
        for way in 0..self.device.ways() {
            let mut first = Buffer::zeroed(left.min(BLOCK_BYTES) as usize);
            let is_read = self.device.read_without(way, at, &mut first).is_ok();
            let header = FrameHeader::decode(self.drive, &first).filter(|_| is_read);
            let Some(header) = header.filter(|header| self.geometry.frame_bytes(header) <= left) else {
                continue;
            };
            let mut buffer = Buffer::zeroed(header.len_bytes() as usize);
            let mut frame = None;
            let (device, drive) = (self.device.clone(), self.drive);
            let mut is_right = |bytes: &[u8]| {
                frame = Frame::decode(drive, bytes);
                frame.is_some()
            };
            if read_otherwise(&*device, at, &mut buffer, &mut is_right) {
                tracing::warn!(zone, from, "a frame was damaged, and could be read otherwise");
                (self.window, self.window_at) = (buffer, at);
                return Ok(frame);
            }
        }
        Ok(None)
    }

    fn frame_as_it_is(&mut self, zone: u64, from: u64) -> Result<Option<Frame>> {
        if from >= self.geometry.zone_bytes() {
            return Ok(None);
        }
        let drive = self.drive;
        let Some(header) = FrameHeader::decode(drive, self.bytes(zone, from, FRAME_HEADER_BYTES as u64)?)
        else {
            return Ok(None);
        };
        if from + self.geometry.frame_bytes(&header) > self.geometry.zone_bytes() {
            return Ok(None);
        }
        Ok(Frame::decode(drive, self.bytes(zone, from, header.len_bytes())?))
    }

    /// Where in a zone, in bytes, a whole frame of this number or a later one begins.
    fn later_frame(&mut self, zone: u64, from: u64, number: u64) -> Result<Option<u64>> {
        let mut at = from;
        while at < self.geometry.zone_bytes() {
            let header = FrameHeader::decode(self.drive, self.bytes(zone, at, FRAME_HEADER_BYTES as u64)?);
            if header.is_some_and(|header| header.number >= number)
                && self.frame_as_it_is(zone, at)?.is_some()
            {
                return Ok(Some(at));
            }
            at += self.geometry.row_bytes();
        }
        Ok(None)
    }

    /// Whether a zone begins with a whole frame that is later than this one.
    fn opens_with_later(&mut self, zone: u64, number: u64) -> Result<bool> {
        let mut block = Buffer::zeroed(BLOCK_BYTES as usize);
        let at = self.geometry.zone_at(zone);
        self.device.read_at(at, &mut block).map_err(Error::device(at))?;
        let header = FrameHeader::decode(self.drive, &block);
        Ok(header.is_some_and(|header| header.number > number) && self.frame_as_it_is(zone, 0)?.is_some())
    }

    /// Bytes of a zone, as far as the zone goes.
    pub(crate) fn bytes(&mut self, zone: u64, from: u64, len: u64) -> Result<&[u8]> {
        let at = self.geometry.zone_at(zone) + from;
        let window_end = self.window_at + self.window.len() as u64;
        if at < self.window_at || at + len > window_end {
            let left = self.geometry.zone_bytes() - from;
            let wanted = len.max(WINDOW_BYTES).min(left).next_multiple_of(BLOCK_BYTES);
            self.window = Buffer::zeroed(wanted as usize);
            self.window_at = at;
            self.device.read_at(at, &mut self.window).map_err(Error::device(at))?;
        }
        let start = (at - self.window_at) as usize;
        let end = (start + len as usize).min(self.window.len());
        Ok(&self.window[start..end])
    }
}
