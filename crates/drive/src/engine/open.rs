//! Opening: reads superblock, manifest and tables, and replays the log.

use super::checkpoint::write_superblock;
use super::log::{Log, LogGrowth, SharedLog};
use super::log_reader::{LaterFrame, LogReader};
use super::{Engine, OpenOptions, Root};
use crate::codec::crc32c;
use crate::device::{BLOCK_BYTES, BlockDevice, Buffer, Buffers, read_verified};
use crate::error::{Error, Result};
use crate::format::{Frame, Manifest, NUMBER_END, SUPERBLOCK_BYTES, Superblock, VERSION};
use crate::index::{Index, IndexTable, TableSource, table_error};
use crate::space::{SharedSpace, Space, lock};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Free zones that are searched for a continuation of the log behind an unreadable frame.
const ZONES_SEARCHED: usize = 16;

/// The outcome of a replay of the log.
#[derive(Debug, Default)]
struct ReplayOutcome {
    /// Position and length of the last frame, in bytes; `None` if there is none.
    last: Option<(u64, u64)>,
    /// The damage that ended the replay before the log's end.
    loss: Option<String>,
}

impl Engine {
    /// Opens a drive. All acknowledged changes are there, and no unfinished ones.
    pub(crate) fn open(device: Arc<dyn BlockDevice>, options: OpenOptions) -> Result<Self> {
        // Writes to a damaged drive could overwrite objects that can still be saved.
        let options = OpenOptions { read_only: options.read_only || options.before_damage, ..options };
        let superblock = read_superblock(&*device)?;
        let manifest = read_manifest(&*device, &superblock)?;
        let (drive, geometry) = (superblock.drive, superblock.geometry);
        let space: SharedSpace = Arc::new(Mutex::new(Space::from_manifest(geometry, &manifest)));
        let cache = Arc::new(sst::Cache::new(options.index_bytes as u64 / 2));
        let (mut tables, mut losses) = (Vec::new(), Vec::new());
        for (id, entry) in manifest.tables.iter().enumerate() {
            let source = TableSource::new(device.clone(), entry, space.clone());
            source.set_in_manifest(true);
            let opened = IndexTable::open(source, id as u64, cache.clone()).map_err(table_error);
            match opened {
                Ok(table) => tables.push(Arc::new(table)),
                Err(error) if options.before_damage => losses.push(format!(
                    "{error}: a table of the index ({} bytes at byte {}) is left out; objects may be missing, or older than stored last",
                    entry.len_bytes,
                    entry.runs.first().map_or(0, |run| run.at()),
                )),
                Err(error) => return Err(error),
            }
        }
        let frame = manifest.next_frame;
        let table_count = manifest.tables.len() as u64;
        let index = match options.before_damage {
            true => Index::salvage(tables, cache, &mut losses),
            false => Index::new(tables, cache),
        };
        let mut engine = Self {
            device,
            drive,
            geometry,
            space,
            last_table: AtomicU64::new(table_count),
            index,
            buffers: Buffers::new(options.buffer_pool_bytes()),
            options,
            log: SharedLog::new(Log {
                next_frame: frame,
                head_at: manifest.head_at,
                checkpoint_frame: frame,
                bytes_since_checkpoint: 0,
                growth: LogGrowth::default(),
            }),
            root: Mutex::new(Root { superblock, retiring: Vec::new() }),
            compaction_lock: Mutex::default(),
            last_write: AtomicU64::new(manifest.last_write),
            failed: OnceLock::new(),
            flush_lock: Mutex::default(),
            losses,
            failed_checkpoints: AtomicU32::new(0),
        };
        // The end of the checkpoint freed these zones too, and the next frame may be in one of them.
        lock(&engine.space).free_dead_zones();
        let ReplayOutcome { last, loss } = engine.replay()?;
        engine.losses.extend(loss);
        if options.before_damage {
            if !engine.losses.is_empty() {
                let lost = engine.name_lost_buckets()?;
                engine.losses.extend(lost);
            }
            return Ok(engine);
        }
        engine.claim_index(&manifest)?;
        lock(&engine.space).begin_log_reserve();
        if !options.read_only {
            engine.make_recovered_durable(last)?;
        }
        Ok(engine)
    }

    /// Makes the recovered state durable. It may come from writes whose flush failed or never happened, and a later flush does not make
    /// them durable. So they are written again. Among frames this applies only to the last, as it was written when all before it were
    /// durable. Among superblocks it applies to either copy: the copy that is not in force is written first, so that an intact one that is
    /// in force exists at any time.
    fn make_recovered_durable(&self, last_frame: Option<(u64, u64)>) -> Result<()> {
        if let Some((at, len_bytes)) = last_frame {
            let row_bytes = self.geometry.row_bytes();
            let mut frame = Buffer::zeroed(len_bytes.next_multiple_of(row_bytes) as usize);
            let content = &mut frame[..len_bytes as usize];
            // The frame is verified before it is written, or a read error of one device would spread to all. The rest of the last row is
            // padding, which need not be readable.
            let is_right = |bytes: &[u8]| Frame::decode(self.drive, bytes).is_some();
            if !read_verified(&*self.device, at, content, is_right).map_err(Error::device(at))? {
                return Err(Error::damaged("the last frame of the log", at));
            }
            self.device.write_at(at, &frame).map_err(Error::device(at))?;
        }
        let superblock = self.lock_root().superblock.clone();
        let mut copies = [0, 1];
        copies.sort_by_key(|&copy| holds_superblock(&*self.device, copy, &superblock));
        write_superblock(&*self.device, &superblock, copies, |at| self.flush(at))
    }

    /// Replays the frames that follow the checkpoint.
    fn replay(&self) -> Result<ReplayOutcome> {
        let mut log = self.lock_log();
        let mut replayed = ReplayOutcome::default();
        let mut reader = LogReader::new(self.device.clone(), self.drive, self.geometry);
        loop {
            let (head, next) = {
                let space = lock(&self.space);
                (space.head_zone(), space.next_zone())
            };
            let here = reader.frame(head, log.head_at)?.filter(|frame| frame.header.number == log.next_frame);
            let (frame, advances) = match here {
                Some(frame) => (frame, false),
                None => match reader.frame(next, 0)?.filter(|frame| frame.header.number == log.next_frame) {
                    Some(frame) => (frame, true),
                    None => {
                        let later = self.later_frame(&mut reader, &log, [(head, log.head_at), (next, 0)])?;
                        replayed.loss =
                            later.map(|later| self.report_damage(&log, head, later)).transpose()?;
                        return Ok(replayed);
                    }
                },
            };
            let len_bytes = frame.header.len_bytes();
            match self.redo(&mut log, frame, advances) {
                Ok(at) => replayed.last = Some((at, len_bytes)),
                Err(error) if self.options.before_damage => {
                    replayed.loss =
                        Some(format!("{error}: the changes of this and all later frames are left out"));
                    return Ok(replayed);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Replays a frame. Returns its position, in bytes.
    fn redo(&self, log: &mut Log, frame: Frame, advances: bool) -> Result<u64> {
        let Frame { header, changes } = frame;
        let mut space = lock(&self.space);
        let mut fits = true;
        if advances {
            fits = space.claim_zone(header.next_zone);
            space.advance(header.next_zone);
            log.head_at = 0;
        }
        let at = self.geometry.zone_at(space.head_zone()) + log.head_at;
        let len_bytes = self.geometry.frame_bytes(&header);
        log.head_at += len_bytes;
        log.bytes_since_checkpoint += len_bytes;
        space.record_frame(&header, log.head_at);
        drop(space);
        log.next_frame += 1;
        self.last_write.fetch_max(header.last_write, Ordering::Relaxed);
        fits &= header.last_write < NUMBER_END;
        if !(fits && self.can_apply(&changes) && self.apply(changes)) {
            return Err(Error::damaged("a frame of the log, which contradicts earlier frames,", at));
        }
        Ok(at)
    }

    /// Searches for an intact frame behind the apparent end of the log. At the true end there is none, because a frame is written only when
    /// all before it are durable. A later frame lies behind the end in the same zone, or in the next zone. If the first frame of the next
    /// zone was longer than half of the zone, a later frame may also lie in the zone after, one of the last that were free then.
    fn later_frame(
        &self,
        reader: &mut LogReader,
        log: &Log,
        places: [(u64, u64); 2],
    ) -> Result<Option<LaterFrame>> {
        for (zone, from) in places {
            if let Some(later) = reader.later_frame(zone, from, log.next_frame)? {
                return Ok(Some(later));
            }
        }
        let zones = lock(&self.space).last_free_zones(ZONES_SEARCHED);
        for zone in zones {
            if let Some(later) = reader.later_frame_at_start(zone, log.next_frame)? {
                return Ok(Some(later));
            }
        }
        Ok(None)
    }

    /// Reports that the log continues behind an unreadable frame: as an error or, with `before_damage`, as a loss.
    fn report_damage(&self, log: &Log, head: u64, later: LaterFrame) -> Result<String> {
        let at = self.geometry.zone_at(head) + log.head_at;
        tracing::error!(
            frame = log.next_frame,
            at,
            later = later.number,
            later_at = later.at,
            "a frame of the log is damaged, and later frames follow"
        );
        if !self.options.before_damage {
            return Err(Error::damaged("a frame of the log", at));
        }
        let commits = (later.number + 1).saturating_sub(log.next_frame);
        Ok(format!(
            "damaged: frame {} of the log at byte {at}; at least {commits} commits from there on are left out; frame {} at {} is intact",
            log.next_frame, later.number, later.at
        ))
    }

    /// Reserves the blocks of tables and manifest, which count as free among the blocks of objects.
    fn claim_index(&self, manifest: &Manifest) -> Result<()> {
        let own = self.lock_root().superblock.manifest;
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
        let read = read_verified(device, at, row, is_whole);
        // A copy that cannot be read counts as torn. The other copy is there for that.
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
        return Err(Error::Unsuitable(format!(
            "the drive has rows of {} bytes, but this array has rows of {row_bytes}: name the devices that the drive was formatted on",
            found.geometry.row_bytes(),
        )));
    }
    if found.geometry.blocks * BLOCK_BYTES > device.len_bytes() {
        return Err(Error::Unsuitable(format!(
            "the device was cut short: it has {} bytes, but the drive on it needs {}; restore its length, or use a copy",
            device.len_bytes(),
            found.geometry.blocks * BLOCK_BYTES
        )));
    }
    Ok(found)
}

/// Returns the error for a device without a valid superblock.
fn no_superblock(copies: [&[u8]; 2]) -> Error {
    if let Some(version) = copies.into_iter().find_map(Superblock::other_version) {
        return Error::Unsuitable(format!(
            "the drive has format version {version}, but this Tenon supports version {VERSION}: use the Tenon that wrote it, or a newer one"
        ));
    }
    match copies.into_iter().any(Superblock::has_magic) {
        true => Error::damaged("both superblocks", 0),
        false => Error::Foreign("the device has no superblock".into()),
    }
}

/// Returns whether a copy of the superblock on the device equals this one.
fn holds_superblock(device: &dyn BlockDevice, copy: u64, superblock: &Superblock) -> bool {
    let mut block = Buffer::zeroed(SUPERBLOCK_BYTES as usize);
    let is_read = device.read_at(superblock.geometry.superblock_at(copy), &mut block).is_ok();
    is_read && Superblock::decode(&block).as_ref() == Some(superblock)
}

fn read_manifest(device: &dyn BlockDevice, superblock: &Superblock) -> Result<Manifest> {
    let at = superblock.manifest.at();
    let mut buffer = Buffer::zeroed(superblock.manifest.len_bytes() as usize);
    let len = superblock.manifest_bytes as usize;
    let is_right = |bytes: &[u8]| crc32c(&bytes[..len]) == superblock.manifest_sum;
    let is_whole = read_verified(device, at, &mut buffer, is_right).map_err(Error::device(at))?;
    let manifest = is_whole.then(|| Manifest::decode(&buffer[..len])).flatten();
    manifest
        .filter(|manifest| manifest.is_valid(superblock.geometry))
        .ok_or(Error::damaged("the manifest", at))
}
