//! Open: superblock, manifest, tables, and what the log says since.

use super::checkpoint::write_superblock;
use super::{Log, Machine, OpenOptions, Root};
use crate::device::{BLOCK_BYTES, BlockDevice, Buffer};
use crate::error::{Error, Result};
use crate::format::{
    DriveId, FRAME_HEADER_BYTES, Frame, FrameHeader, Geometry, Manifest, NUMBER_END, SUPERBLOCK_BYTES,
    Superblock,
};
use crate::index::{Index, IndexTable, TableSource, of_table};
use crate::space::{SharedSpace, Space, lock};
use crate::wire::sum;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

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
        let core = Self {
            device,
            drive,
            geometry,
            space,
            last_table: AtomicU64::new(tables.len() as u64),
            index: Index::new(tables, cache),
            options,
            log: Mutex::new(Log { frame, at: manifest.head_at, since: frame, since_bytes: 0 }),
            root: Mutex::new(Root { superblock, retiring: Vec::new() }),
            last_write: AtomicU64::new(manifest.last_write),
            failed: OnceLock::new(),
        };
        // As the end of the checkpoint did: the next frame may be in such a zone.
        lock(&core.space).free_dead_zones();
        let last_frame = core.replay()?;
        core.claim_index(&manifest)?;
        lock(&core.space).set_aside();
        if !options.read_only {
            core.make_found_durable(last_frame)?;
        }
        Ok(core)
    }

    /// What was found is from now on relied upon, and may be no safer than a write whose flush failed or never came: no later
    /// flush makes that safe. Of frames that can be the last only, as it was written when those before it were durable. Of the
    /// superblocks that can be either: the one that does not count is written first, so that a whole one that does is there all the time.
    fn make_found_durable(&self, last_frame: Option<(u64, u64)>) -> Result<()> {
        if let Some((at, len_bytes)) = last_frame {
            let mut frame = Buffer::zeroed(len_bytes as usize);
            self.device.read_at(at, &mut frame).map_err(Error::device(at))?;
            self.device.write_at(at, &frame).map_err(Error::device(at))?;
        }
        let superblock = self.root().superblock.clone();
        let mut copies = [0, 1];
        copies.sort_by_key(|&copy| holds_superblock(&*self.device, copy, &superblock));
        write_superblock(&*self.device, &superblock, copies)
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
            let len_bytes = frame.header.len_bytes();
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
        log.at += header.len_bytes();
        log.since_bytes += header.len_bytes();
        space.wrote(header.number, log.at, header.pieces_bytes.into());
        drop(space);
        log.frame += 1;
        self.last_write.fetch_max(header.last_write, Ordering::Relaxed);
        fits &= header.last_write < NUMBER_END;
        if !(self.apply(changes) && fits) {
            return Err(Error::damaged("a frame of the log, which does not fit what came before it,", at));
        }
        Ok(at)
    }

    /// Where the log ends nothing follows: a later frame was written only when all before it were durable.
    fn check_end(&self, reader: &mut LogReader, log: &Log, places: [(u64, u64); 2]) -> Result<()> {
        for (zone, from) in places {
            if let Some(at) = reader.later_frame(zone, from, log.frame)? {
                tracing::error!(frame = log.frame, at, "the log goes on behind what cannot be read");
                let place = self.geometry.zone_at(places[0].0) + places[0].1;
                return Err(Error::damaged("a frame of the log", place));
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
    let mut blocks = Buffer::zeroed(2 * SUPERBLOCK_BYTES as usize);
    if device.len_bytes() < blocks.len() as u64 {
        return Err(Error::Foreign("the device is too short".into()));
    }
    device.read_at(0, &mut blocks).map_err(Error::device(0))?;
    let (first, second) = blocks.split_at(SUPERBLOCK_BYTES as usize);
    let is_meant = Superblock::is_meant(first) || Superblock::is_meant(second);
    let found = [first, second].into_iter().filter_map(Superblock::decode);
    let found = found.max_by_key(|superblock| superblock.generation).ok_or_else(|| match is_meant {
        true => Error::damaged("both superblocks, or they are of another version of Tenon,", 0),
        false => Error::Foreign("there is no superblock on the device".into()),
    })?;
    if found.geometry.blocks * BLOCK_BYTES > device.len_bytes() {
        return Err(Error::Unfit(format!(
            "the device was cut short: it has {} bytes, and the drive on it {}",
            device.len_bytes(),
            found.geometry.blocks * BLOCK_BYTES
        )));
    }
    Ok(found)
}

/// Whether this copy of the superblock is this one.
fn holds_superblock(device: &dyn BlockDevice, copy: u64, superblock: &Superblock) -> bool {
    let mut block = Buffer::zeroed(SUPERBLOCK_BYTES as usize);
    let is_read = device.read_at(copy * SUPERBLOCK_BYTES, &mut block).is_ok();
    is_read && Superblock::decode(&block).as_ref() == Some(superblock)
}

fn read_manifest(device: &dyn BlockDevice, superblock: &Superblock) -> Result<Manifest> {
    let at = superblock.manifest.at();
    let mut buffer = Buffer::zeroed(superblock.manifest.len_bytes() as usize);
    device.read_at(at, &mut buffer).map_err(Error::device(at))?;
    let bytes = &buffer[..superblock.manifest_bytes as usize];
    let is_whole = sum(bytes) == superblock.manifest_sum;
    let manifest = is_whole.then(|| Manifest::decode(bytes)).flatten();
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

    /// The frame at a place of a zone, if one begins there that is whole.
    pub(crate) fn frame(&mut self, zone: u64, from: u64) -> Result<Option<Frame>> {
        if from >= self.geometry.zone_bytes() {
            return Ok(None);
        }
        let drive = self.drive;
        let Some(header) = FrameHeader::decode(drive, self.bytes(zone, from, FRAME_HEADER_BYTES as u64)?)
        else {
            return Ok(None);
        };
        if from + header.len_bytes() > self.geometry.zone_bytes() {
            return Ok(None);
        }
        Ok(Frame::decode(drive, self.bytes(zone, from, header.len_bytes())?))
    }

    /// Where in a zone, in bytes, a whole frame of this number or a later one begins.
    fn later_frame(&mut self, zone: u64, from: u64, number: u64) -> Result<Option<u64>> {
        let mut at = from;
        while at < self.geometry.zone_bytes() {
            let header = FrameHeader::decode(self.drive, self.bytes(zone, at, FRAME_HEADER_BYTES as u64)?);
            if header.is_some_and(|header| header.number >= number) && self.frame(zone, at)?.is_some() {
                return Ok(Some(at));
            }
            at += BLOCK_BYTES;
        }
        Ok(None)
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
