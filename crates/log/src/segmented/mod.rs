//! A log of numbered segments in a directory, which are appended to, read anywhere, and removed from the oldest on.
//!
//! Beside the segments `N.log` lie `synced`, the mark of what is synced; `lock`; `N.damaged`, a segment with damage
//! that is not needed any more; and `N.lost`, what lay behind the place where a power cut tore the log. Nothing reads
//! the last two again.
//!
//! Invariants: a record counts as a whole or not at all. After [`SegmentedLog::sync`], everything appended before survives the
//! loss of power. A segment is removed only when neither it nor an older one is needed, so that a record that cancels
//! another never disappears before it. A damaged segment is never removed, only renamed.

mod direct_io;
mod frame;
mod read_faults;
mod rot;
mod scan;
mod segment;

pub use frame::SEGMENT_START;
pub use read_faults::ReadFaults;
pub use rot::{rot, synced_bodies};
pub use scan::{Damage, Entry, ScanEvent, scan};
pub use segment::Segment;

use crate::frame::LOST;
use crate::hold;
use crate::medium::unused_path;
use crate::sync_mark::SyncMark;
use bytes::Bytes;
use direct_io::{DIRECT_BYTES_MIN, DirectWriter};
use scan::{Scanned, TornTail};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::ops::{Range, RangeInclusive};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Length at which a segment is full, in bytes.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Longest body that is written in one call with its record, in bytes.
const SINGLE_WRITE_BYTES_MAX: usize = 64 << 10;
/// Segments that are removed together while others are in use: each removal syncs those that stay.
const RECLAIMED_SEGMENTS: usize = 4;
/// Disk space reserved for records without a body, and for those with [`Space::Any`].
const RESERVE_BYTES: u64 = 4 << 20;
/// Bytes of bodies after which the file system is asked again for its free space.
const SPACE_CHECK_BYTES: u64 = 1 << 20;
/// Extension of damaged segments that are not needed any more.
const DAMAGED: &str = "damaged";
/// Name of the file that keeps the mark.
const MARK_FILE: &str = "synced";

/// Length of the shortest frame, in bytes.
#[cfg(feature = "fuzz")]
pub(crate) const FRAME_BYTES_MIN: usize = frame::HEAD_V1_BYTES;

/// Returns a valid first frame of the segment 1, for fuzz targets.
#[cfg(feature = "fuzz")]
pub(crate) fn first_frame_for_fuzzing(header: &[u8], body: &[u8]) -> Vec<u8> {
    let mut frame = frame::encode(header, &[body]);
    frame::set_position(&mut frame, 1, 0);
    frame
}

type Segments = BTreeMap<u64, Arc<Segment>>;

/// The disk space that a record may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// The free space except the reserve, which is for records that the log's owner needs to go on.
    Unreserved,
    /// All free space, with the reserve.
    Any,
}

/// The segments of a directory.
#[derive(Debug)]
pub struct SegmentedLog {
    /// Name of the log in messages.
    name: &'static str,
    dir: PathBuf,
    inner: Mutex<Inner>,
    /// The file that keeps the [`SyncMark`].
    mark: File,
    /// Held as long as the log is open.
    _lock: File,
    /// Serializes syncs. A waiter may find its bytes synced by the sync before.
    syncing: Mutex<()>,
    /// Bytes appended by this process that survive the loss of power.
    synced: AtomicU64,
    /// Copy of [`Inner::appended`] for readers that must not wait for the disk.
    appended: AtomicU64,
    /// Length of all segments in bytes, each but the newest counted as full.
    bytes: AtomicU64,
    faults: ReadFaults,
}

#[derive(Debug)]
struct Inner {
    segments: Segments,
    /// Number of the next segment.
    next: u64,
    /// End of the newest segment.
    end: u64,
    /// Bytes appended by this process.
    appended: u64,
    /// Oldest segment that may have unsynced bytes.
    unsynced_from: u64,
    /// Bytes of bodies that the disk has room for, according to the last query.
    room: u64,
    writer: DirectWriter,
}

impl SegmentedLog {
    /// Opens the log in a directory, or creates it, and calls `each` for its records and damaged ranges, in order. The
    /// log ends at the first record that is damaged and is not known to be synced; that record was never promised to
    /// survive.
    ///
    /// Fails with `WouldBlock` if another process has the log open, and with the first error of `each`.
    pub fn open(
        dir: &Path,
        name: &'static str,
        each: impl FnMut(ScanEvent) -> io::Result<()>,
    ) -> io::Result<Self> {
        Self::open_with(dir, name, ReadFaults::default(), each)
    }

    /// Like [`open`](Self::open), on a disk on which some reads fail. For simulators.
    pub fn open_with(
        dir: &Path,
        name: &'static str,
        faults: ReadFaults,
        each: impl FnMut(ScanEvent) -> io::Result<()>,
    ) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let lock = lock_dir(dir)?;
        let Scanned { segments, torn } = scan::read(dir, &faults, each)?;
        if let Some((last, torn)) = segments.last_key_value().zip(torn) {
            truncate_torn_tail(dir, name, last.1, &torn)?;
        }
        let next = segments.last_key_value().map_or(1, |(number, _)| number + 1);
        // An earlier process may have ended without a sync. Later changes must not survive a power cut that takes its
        // records.
        segments.values().try_for_each(|segment| segment.sync())?;
        let (end, appended, room, writer) = (0, 0, 0, DirectWriter::default());
        let inner = Inner { segments, next, end, appended, unsynced_from: next, room, writer };
        let log = Self {
            name,
            dir: dir.to_owned(),
            inner: Mutex::new(inner),
            mark: SyncMark::open(&dir.join(MARK_FILE))?,
            _lock: lock,
            syncing: Mutex::new(()),
            synced: AtomicU64::new(0),
            appended: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            faults,
        };
        log.begin_segment(&mut log.lock())?;
        log.write_sync_mark(SyncMark::at(next, 0));
        Ok(log)
    }

    fn write_sync_mark(&self, mark: SyncMark) {
        if let Err(error) = mark.write(&self.mark) {
            tracing::debug!(%error, "cannot record up to which position the {} is synced; after a crash, damage behind the last recorded one may be taken for writes that were never synced", self.name);
        }
    }

    /// Appends a record: a header and a body in pieces. Returns the range of the body. `StorageFull`: the disk does
    /// not have the space.
    ///
    /// Panics if the header is empty, or is one of the log's own.
    pub fn append(
        &self,
        header: &[u8],
        body: &[Bytes],
        space: Space,
    ) -> io::Result<(Arc<Segment>, Range<u64>)> {
        assert!(header.first().is_some_and(|kind| *kind != SEGMENT_START), "the header would be misread");
        let pieces: Vec<&[u8]> = body.iter().map(Bytes::as_ref).collect();
        let mut frame = frame::encode(header, &pieces);
        let mut inner = self.lock();
        if inner.end >= SEGMENT_BYTES {
            self.begin_segment(&mut inner)?;
        }
        let appended = match self.reserve_disk_space(&mut inner, body, space) {
            Ok(()) => inner.append(&mut frame, &pieces),
            Err(full) => Err(full),
        };
        let appended = match appended {
            // The disk may have less room than a segment and be full of records that are not needed any more.
            Err(error) if error.kind() == ErrorKind::StorageFull && inner.is_unneeded() => {
                self.begin_segment(&mut inner)?;
                inner.segments.values().try_for_each(|segment| segment.sync())?;
                if let Some(last) = inner.last_unneeded() {
                    self.remove_up_to(&mut inner, last)?;
                }
                inner.append(&mut frame, &pieces)
            }
            appended => appended,
        };
        self.appended.store(inner.appended, Ordering::Release);
        self.update_length(&inner);
        appended
    }

    fn update_length(&self, inner: &Inner) {
        self.bytes.store((inner.segments.len() as u64 - 1) * SEGMENT_BYTES + inner.end, Ordering::Release);
    }

    /// Fails if a body would leave too little disk space for records that may use the reserve.
    fn reserve_disk_space(&self, inner: &mut Inner, body: &[Bytes], space: Space) -> io::Result<()> {
        let body_bytes: u64 = body.iter().map(|piece| piece.len() as u64).sum();
        if body_bytes == 0 || space == Space::Any {
            return Ok(());
        }
        if inner.room < body_bytes {
            let disk = rustix::fs::statvfs(&self.dir)?;
            let room = (disk.f_bavail * disk.f_frsize).saturating_sub(RESERVE_BYTES);
            inner.room = room.min(body_bytes.next_multiple_of(SPACE_CHECK_BYTES));
        }
        inner.room = inner.room.checked_sub(body_bytes).ok_or(ErrorKind::StorageFull)?;
        Ok(())
    }

    /// Makes everything appended before survive the loss of power.
    pub fn sync(&self) -> io::Result<()> {
        let wanted = self.appended();
        let _syncing = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.synced_bytes() >= wanted {
            return Ok(());
        }
        self.sync_after(0, || Ok(()))
    }

    /// Syncs the segments with numbers above `last`. `remove` removes those up to `last` before the log counts as
    /// synced.
    fn sync_after(&self, last: u64, remove: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let (appended, newest, end, segments) = {
            let inner = self.lock();
            let from = inner.unsynced_from.max(last + 1);
            let unsynced = inner.segments.range(from..).map(|(_, segment)| segment.clone());
            (self.appended(), inner.newest().number, inner.end, unsynced.collect::<Vec<_>>())
        };
        assert!(self.synced_bytes() <= appended, "more counts as synced than was appended");
        segments.iter().try_for_each(|segment| segment.sync())?;
        remove()?;
        self.lock().unsynced_from = newest;
        self.write_sync_mark(SyncMark::at(newest, end));
        self.synced.store(appended, Ordering::Release);
        Ok(())
    }

    /// Removes the oldest segments that are not needed, after the records that make them unnecessary are synced. The
    /// removed segments are not synced first: after a power cut in between, nothing behind them counts as synced yet.
    pub fn reclaim(&self) -> io::Result<()> {
        let Some(last) = self.last_unneeded() else { return Ok(()) };
        let _syncing = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        self.sync_after(last, || {
            let mut inner = self.lock();
            self.remove_up_to(&mut inner, last)?;
            self.update_length(&inner);
            drop(inner);
            File::open(&self.dir)?.sync_all()
        })
    }

    /// Returns the number of bytes appended by this process.
    pub fn appended(&self) -> u64 {
        self.appended.load(Ordering::Acquire)
    }

    /// Returns how many of the bytes appended by this process survive the loss of power.
    pub fn synced_bytes(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    fn remove_up_to(&self, inner: &mut Inner, last: u64) -> io::Result<()> {
        while let Some(oldest) = inner.segments.first_entry()
            && *oldest.key() <= last
        {
            let file = path(&self.dir, *oldest.key());
            if oldest.get().is_preserved.load(Ordering::Acquire) {
                fs::rename(&file, unused_path(&file, DAMAGED))?;
            } else {
                fs::remove_file(&file)?;
            }
            oldest.remove();
        }
        Ok(())
    }

    /// Returns the number of the last of the oldest segments that are not needed; `None` if the oldest is needed. The
    /// newest segment counts as needed.
    pub fn last_unneeded(&self) -> Option<u64> {
        self.lock().last_unneeded()
    }

    /// Returns whether removing segments is worth a sync of those that stay: many can be removed, or those that stay
    /// have nothing that is needed.
    pub fn is_worth_reclaiming(&self) -> bool {
        let inner = self.lock();
        let count = inner.last_unneeded().map_or(0, |last| inner.segments.range(..=last).count());
        count >= RECLAIMED_SEGMENTS || (count > 0 && count + 1 == inner.segments.len() && inner.is_unneeded())
    }

    /// Returns the segments' numbers, and how many bytes of each survive the loss of power.
    pub fn synced(&self) -> Vec<(u64, u64)> {
        let inner = self.lock();
        inner.segments.values().map(|one| (one.number, one.synced.load(Ordering::Acquire))).collect()
    }

    /// Returns the length of all segments in bytes, each but the newest counted as full.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Returns the number of the newest segment.
    pub fn newest_number(&self) -> u64 {
        self.lock().newest().number
    }

    fn begin_segment(&self, inner: &mut Inner) -> io::Result<()> {
        let number = inner.next;
        // The number is used up even if the segment cannot be created.
        inner.next += 1;
        let path = path(&self.dir, number);
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        let direct = if inner.writer.decide_direct() { direct_io::open(&path) } else { None };
        File::open(&self.dir)?.sync_all()?;
        inner.segments.insert(number, Segment::open(number, file, direct, self.faults.clone()));
        inner.end = 0;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn append(&mut self, frame: &mut [u8], pieces: &[&[u8]]) -> io::Result<(Arc<Segment>, Range<u64>)> {
        let segment = self.newest();
        let begin = self.end;
        let first = if begin == 0 { self.first_frame(segment.number)? } else { Vec::new() };
        frame::set_position(frame, segment.number, begin + first.len() as u64);
        let body_at = begin + (first.len() + frame.len()) as u64;
        if let Err(error) = self.write(&segment, begin, &[&first, frame], pieces) {
            // An incomplete record would hide those after it.
            segment.file.set_len(begin)?;
            return Err(error);
        }
        self.end = body_at + pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        self.appended += self.end - begin;
        Ok((segment, body_at..self.end))
    }

    /// Writes frames and a body. Small records are written in one call, so that a crash mostly leaves them whole or
    /// not at all.
    fn write(&mut self, segment: &Segment, at: u64, frames: &[&[u8]], body: &[&[u8]]) -> io::Result<()> {
        let body_bytes: usize = body.iter().map(|piece| piece.len()).sum();
        if body_bytes <= SINGLE_WRITE_BYTES_MAX {
            return segment.file.write_all_at(&[frames, body].concat().concat(), at);
        }
        let frames = frames.concat();
        segment.file.write_all_at(&frames, at)?;
        let mut at = at + frames.len() as u64;
        if let Some(direct) = segment.direct.as_ref().filter(|_| body_bytes >= DIRECT_BYTES_MIN) {
            return self.writer.write(&segment.file, direct, at, body);
        }
        for piece in body {
            segment.file.write_all_at(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Returns the first frame of a segment, which says where the segment before it ends.
    fn first_frame(&self, number: u64) -> io::Result<Vec<u8>> {
        let previous = self.segments.range(..number).next_back();
        Ok(match previous {
            Some((previous, segment)) => frame::encode_segment_start(*previous, segment.len_bytes()?),
            None => frame::encode_segment_start(0, 0),
        })
    }

    /// Returns the number of the last of the oldest segments that are not needed, the newest segment excepted.
    fn last_unneeded(&self) -> Option<u64> {
        let old = self.segments.len() - 1;
        let unneeded =
            self.segments.iter().take(old).take_while(|(_, segment)| Arc::strong_count(segment) == 1);
        unneeded.last().map(|(number, _)| *number)
    }

    /// Returns whether the newest segment has records but none that is needed.
    fn is_unneeded(&self) -> bool {
        self.end > 0
            && self.segments.last_key_value().is_some_and(|(_, newest)| Arc::strong_count(newest) == 1)
    }

    fn newest(&self) -> Arc<Segment> {
        match self.segments.last_key_value() {
            Some((_, segment)) => segment.clone(),
            None => unreachable!("an open log has a segment"),
        }
    }
}

/// Locks the log in a directory for this process while the returned file is open. `WouldBlock`: another process has it.
pub fn lock_dir(dir: &Path) -> io::Result<File> {
    let lock = File::options().create(true).truncate(false).write(true).open(dir.join("lock"))?;
    hold(&lock)?;
    Ok(lock)
}

/// Ends the log where a power cut tore it. What follows was never promised to survive; if it may have worth, it is kept
/// in other files.
fn truncate_torn_tail(dir: &Path, name: &str, last: &Segment, torn: &TornTail) -> io::Result<()> {
    let end = torn.end;
    let (dir_shown, segment) = (dir.display(), last.number);
    tracing::warn!(dir = %dir_shown, segment, end, "the {name} has an incomplete or damaged record that is not known to be synced, and ends there; anything of worth behind it is kept in files named *.lost");
    let file = path(dir, last.number);
    if torn.must_be_kept {
        fs::copy(&file, unused_path(&file, LOST))?;
    }
    for number in numbers(dir)?.into_iter().filter(|number| *number > last.number) {
        let file = path(dir, number);
        fs::rename(&file, unused_path(&file, LOST))?;
    }
    last.file.set_len(end)?;
    last.file.sync_all()
}

/// Returns the number of damaged files in a directory that no log needs any more; 0 if it cannot be read.
pub fn damaged_files(dir: &Path) -> usize {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let is_damaged = |path: PathBuf| path.extension().is_some_and(|extension| extension == DAMAGED);
    entries.flatten().filter(|entry| is_damaged(entry.path())).count()
}

/// The versions of logs that this Tenon reads. Version 1 has frames without a checksum of their position.
pub const VERSIONS: RangeInclusive<u32> = 1..=2;

/// Returns the newest version of the segments in a directory, also if it is unknown; `None` if there is no segment with a frame. Reads only the
/// beginning of each segment, and takes no lock.
///
/// # Errors
/// `InvalidData`: a file is not a segment.
pub fn stored_version(dir: &Path) -> io::Result<Option<u32>> {
    let mut newest = None;
    for number in numbers(dir)? {
        let mut head = Vec::new();
        File::open(path(dir, number))?.take(frame::VERSION_BYTES).read_to_end(&mut head)?;
        // Zeros are reserved space.
        if head.iter().all(|byte| *byte == 0) {
            continue;
        }
        let foreign = || io::Error::new(ErrorKind::InvalidData, "a segment does not begin with a frame");
        newest = newest.max(Some(frame::version_of_segment(&head).ok_or_else(foreign)?));
    }
    Ok(newest)
}

fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:016x}.log"))
}

/// Returns the numbers of the segments in a directory, ascending.
fn numbers(dir: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(numbers),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".log"));
        numbers.extend(number.and_then(|digits| u64::from_str_radix(digits, 16).ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appends a record with a number.
    pub(super) fn append(log: &SegmentedLog, number: u8, body: Vec<u8>) -> (Arc<Segment>, Range<u64>) {
        log.append(&[0, number], &[body.into()], Space::Unreserved).unwrap()
    }

    pub(super) fn open(
        dir: &Path,
        each: impl FnMut(ScanEvent) -> io::Result<()>,
    ) -> io::Result<SegmentedLog> {
        open_with(dir, ReadFaults::default(), each)
    }

    pub(super) fn open_with(
        dir: &Path,
        faults: ReadFaults,
        each: impl FnMut(ScanEvent) -> io::Result<()>,
    ) -> io::Result<SegmentedLog> {
        SegmentedLog::open_with(dir, "log of the tests", faults, each)
    }

    fn found(dir: &Path) -> (SegmentedLog, Vec<(u8, Bytes)>) {
        let mut found = Vec::new();
        let log = open(dir, |event| {
            let ScanEvent::Entry(one) = event else { return Ok(()) };
            found.push((one.header[1], one.segment.read(&one.body)?));
            Ok(())
        });
        (log.unwrap(), found)
    }

    #[test]
    fn appended_records_are_read_and_an_incomplete_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (log, none) = found(dir.path());
        assert!(none.is_empty());
        for change in 1..=3 {
            append(&log, change, vec![change; 100]);
        }
        log.sync().unwrap();
        drop(log);
        let whole = std::fs::read(path(dir.path(), 1)).unwrap();
        let expected = |count| (1..=count).map(|n| (n, Bytes::from(vec![n; 100]))).collect::<Vec<_>>();
        for cut in [whole.len() - 1, whole.len() - 120] {
            std::fs::write(path(dir.path(), 1), &whole[..cut]).unwrap();
            assert_eq!(found(dir.path()).1, expected(2));
        }
        let mut damaged = whole.clone();
        damaged[whole.len() - 50] ^= 1;
        std::fs::write(path(dir.path(), 1), &damaged).unwrap();
        let (log, read) = found(dir.path());
        assert_eq!(read, expected(2));
        append(&log, 4, vec![4; 100]);
        drop(log);
        let read = found(dir.path()).1;
        assert_eq!(read.iter().map(|(change, _)| *change).collect::<Vec<_>>(), [1, 2, 4]);
    }

    /// A process ended without syncing what it had acknowledged, and the next process synced only its own segment.
    /// Files closed before the end and synced after it did not survive the loss of power, nor did names whose old
    /// content was gone. If the older segment lost its end between two records, the newer one was read as if nothing
    /// were missing (worlds of files 292, 476, 624 and 20660).
    #[test]
    fn records_of_earlier_processes_are_synced_when_the_log_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let (log, _) = found(dir.path());
        append(&log, 1, vec![1; 100]);
        drop(log);
        let (log, _) = found(dir.path());
        let length = std::fs::metadata(path(dir.path(), 1)).unwrap().len();
        assert_eq!(log.synced(), [(1, length), (2, 0)]);
    }

    /// A segment was removed once the record that made it unnecessary was appended but not synced. After a power cut
    /// a record was left whose bytes were gone, and the log could not be opened any more (world of files 20060).
    #[test]
    fn a_segment_is_removed_after_its_done_records_are_synced() {
        let dir = tempfile::tempdir().unwrap();
        drop(found(dir.path()));
        let (log, _) = found(dir.path());
        append(&log, 1, Vec::new());
        log.reclaim().unwrap();
        let length = std::fs::metadata(path(dir.path(), 2)).unwrap().len();
        assert_eq!(log.synced(), [(2, length)]);
    }

    #[test]
    fn unneeded_segments_are_removed_from_the_oldest_on() {
        let dir = tempfile::tempdir().unwrap();
        let (log, _) = found(dir.path());
        let body = vec![0; SEGMENT_BYTES as usize];
        let (first, _) = append(&log, 1, body.clone());
        let (second, _) = append(&log, 2, body);
        append(&log, 3, Vec::new());
        drop(second);
        log.reclaim().unwrap();
        assert_eq!(numbers(dir.path()).unwrap().len(), 3);
        drop(first);
        log.reclaim().unwrap();
        assert_eq!(numbers(dir.path()).unwrap(), [3]);
    }
}
