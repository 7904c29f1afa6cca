//! The log on disk: segments that are appended to, read anywhere, and removed from the oldest on.
//!
//! Invariants: a record counts as a whole or not at all. After [`Log::sync`], everything appended before survives the
//! loss of power. A segment is removed only when neither it nor an older one is needed, so that a record that cancels
//! another never disappears before it. A damaged segment is never removed, only renamed.

use super::direct_io::{self, DIRECT_BYTES_MIN, DirectWriter};
use super::log_record::{self, Record};
use super::scan::{MARK_FILE, ScanEvent, Scanned, SyncMark, TornTail, scan};
use crate::medium::unused;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::{Payload, hold};

/// Length at which a segment is full, in bytes.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Longest body that is written in one call with its record, in bytes.
const SINGLE_WRITE_BYTES_MAX: usize = 64 << 10;
/// Segments that are removed together while others are in use: each removal syncs those that stay.
const RECLAIMED_SEGMENTS: usize = 4;
/// Disk space reserved for records without bytes of objects.
const RESERVE_BYTES: u64 = 4 << 20;
/// Bytes of objects after which the file system is asked again for its free space.
const SPACE_CHECK_BYTES: u64 = 1 << 20;
/// Extension of damaged segments that are not needed any more.
const DAMAGED: &str = "damaged";
/// Extension of what followed the place where a power cut tore the log.
const LOST: &str = "lost";

/// A file of the log. Whatever needs its content holds a reference.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    file: File,
    /// The segment opened for direct I/O; `None` if long bodies are written through the page cache too.
    direct: Option<File>,
    /// Bytes that survive the loss of power, as far as this process knows.
    synced: AtomicU64,
    /// The file is kept when the segment is not needed any more, because it has damage and may hold the last copy of
    /// some bytes.
    is_preserved: AtomicBool,
}

impl Segment {
    pub(super) fn new(number: u64, file: File) -> Arc<Self> {
        Self::open(number, file, None)
    }

    fn open(number: u64, file: File, direct: Option<File>) -> Arc<Self> {
        let (synced, is_preserved) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { number, file, direct, synced, is_preserved })
    }

    pub(super) fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    pub(super) fn preserve(&self) {
        self.is_preserved.store(true, Ordering::Release);
    }

    pub(super) fn read_into(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        #[cfg(test)]
        tests::fail_if_unreadable(self.number, at, bytes.len() as u64)?;
        self.file.read_exact_at(bytes, at)
    }

    /// Flips bits of a byte. For simulators.
    pub(super) fn flip(&self, at: u64, bits: u8) -> io::Result<()> {
        let mut byte = [0];
        self.file.read_exact_at(&mut byte, at)?;
        self.file.write_all_at(&[byte[0] ^ bits], at)
    }

    fn sync(&self) -> io::Result<()> {
        let len = self.len()?;
        self.file.sync_data()?;
        self.synced.fetch_max(len, Ordering::AcqRel);
        Ok(())
    }

    /// Returns whether everything up to an offset survives the loss of power.
    pub(super) fn is_synced_to(&self, end: u64) -> bool {
        self.synced.load(Ordering::Acquire) >= end
    }

    pub(super) fn read(&self, range: &Range<u64>) -> io::Result<Bytes> {
        #[cfg(test)]
        tests::fail_if_unreadable(self.number, range.start, range.end - range.start)?;
        let len = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
        if let Some(direct) = self.direct.as_ref().filter(|_| len >= DIRECT_BYTES_MIN) {
            match direct_io::read(direct, range) {
                Err(error) if error.kind() == ErrorKind::InvalidInput => {}
                read => return read,
            }
        }
        let mut bytes = Vec::with_capacity(len);
        // The buffer is not zeroed first. Its capacity may be larger than what was asked for.
        while bytes.len() < len {
            let at = range.start + bytes.len() as u64;
            match rustix::io::pread(&self.file, rustix::buffer::spare_capacity(&mut bytes), at) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        bytes.truncate(len);
        Ok(bytes.into())
    }
}

pub(super) type Segments = BTreeMap<u64, Arc<Segment>>;

/// The segments of a directory.
#[derive(Debug)]
pub(super) struct Log {
    dir: PathBuf,
    inner: Mutex<Inner>,
    /// File of the [`SyncMark`].
    mark: File,
    /// Held as long as the log is open.
    _lock: File,
    /// Serializes syncs. A waiter may find its bytes synced by the sync before.
    syncing: Mutex<()>,
    /// Bytes appended by this process that survive the loss of power.
    synced: AtomicU64,
    /// Copy of [`Inner::appended`] for readers that must not wait for the disk.
    appended: AtomicU64,
    /// Length of all segments in bytes.
    bytes: AtomicU64,
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
    /// Bytes of objects that the disk has room for, according to the last query.
    room: u64,
    writer: DirectWriter,
}

/// A record of a log, and the range of its body.
#[derive(Debug)]
pub(super) struct FoundRecord {
    pub(super) record: Record,
    pub(super) segment: Arc<Segment>,
    pub(super) body: Range<u64>,
}

impl Log {
    /// Opens the log in a directory, or creates it, and reads it to its end. The log ends at the first record that is
    /// damaged and was not synced; that record was never promised to survive.
    pub(super) fn open(dir: &Path, each: impl FnMut(ScanEvent) -> io::Result<()>) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let lock = lock_dir(dir)?;
        let Scanned { segments, torn } = scan(dir, each)?;
        if let Some((last, torn)) = segments.last_key_value().zip(torn) {
            truncate_torn_tail(dir, last.1, &torn)?;
        }
        let next = segments.last_key_value().map_or(1, |(number, _)| number + 1);
        // An earlier process may have ended without a sync. Later changes must not survive a power cut that takes its
        // records.
        segments.values().try_for_each(|segment| segment.sync())?;
        let (end, appended, room, writer) = (0, 0, 0, DirectWriter::default());
        let inner = Inner { segments, next, end, appended, unsynced_from: next, room, writer };
        let mark = File::options().create(true).truncate(false).write(true).open(dir.join(MARK_FILE))?;
        let log = Self {
            dir: dir.to_owned(),
            inner: Mutex::new(inner),
            mark,
            _lock: lock,
            syncing: Mutex::new(()),
            synced: AtomicU64::new(0),
            appended: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        };
        log.begin_segment(&mut log.lock())?;
        log.write_sync_mark(&SyncMark::at(next, 0));
        Ok(log)
    }

    /// Writes the position up to which the log is synced. The mark itself is not synced: an older mark claims less,
    /// and nothing wrong.
    fn write_sync_mark(&self, mark: &SyncMark) {
        let Some(bytes) = mark.encode() else { return };
        if let Err(error) = self.mark.write_all_at(&bytes, 0) {
            tracing::debug!(%error, "cannot write up to where the write-back log is synced");
        }
    }

    /// Appends a record with a body. Returns the range of the body.
    pub(super) fn append(&self, record: &Record, body: &Payload) -> io::Result<(Arc<Segment>, Range<u64>)> {
        let pieces: Vec<&[u8]> = body.pieces().iter().map(Bytes::as_ref).collect();
        let mut frame = log_record::encode(record, &pieces);
        let mut inner = self.lock();
        if inner.end >= SEGMENT_BYTES {
            self.begin_segment(&mut inner)?;
        }
        let appended = match self.reserve_disk_space(&mut inner, record, body) {
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

    /// Fails if a body would leave too little disk space for records without bytes of objects.
    fn reserve_disk_space(&self, inner: &mut Inner, record: &Record, body: &Payload) -> io::Result<()> {
        if body.is_empty() || matches!(record, Record::Note { .. }) {
            return Ok(());
        }
        if inner.room < body.len() {
            let disk = rustix::fs::statvfs(&self.dir)?;
            let room = (disk.f_bavail * disk.f_frsize).saturating_sub(RESERVE_BYTES);
            inner.room = room.min(body.len().next_multiple_of(SPACE_CHECK_BYTES));
        }
        inner.room = inner.room.checked_sub(body.len()).ok_or(ErrorKind::StorageFull)?;
        Ok(())
    }

    /// Makes everything appended before survive the loss of power.
    pub(super) fn sync(&self) -> io::Result<()> {
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
        segments.iter().try_for_each(|segment| segment.sync())?;
        remove()?;
        self.lock().unsynced_from = newest;
        self.write_sync_mark(&SyncMark::at(newest, end));
        self.synced.store(appended, Ordering::Release);
        Ok(())
    }

    /// Removes the oldest segments that are not needed, after the records that make them unnecessary are synced. The
    /// removed segments are not synced first: after a power cut in between, nothing behind them counts as synced yet.
    pub(super) fn reclaim(&self) -> io::Result<()> {
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
    pub(super) fn appended(&self) -> u64 {
        self.appended.load(Ordering::Acquire)
    }

    /// Returns how many of the bytes appended by this process survive the loss of power.
    pub(super) fn synced_bytes(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    fn remove_up_to(&self, inner: &mut Inner, last: u64) -> io::Result<()> {
        while let Some(oldest) = inner.segments.first_entry()
            && *oldest.key() <= last
        {
            let file = path(&self.dir, *oldest.key());
            if oldest.get().is_preserved.load(Ordering::Acquire) {
                fs::rename(&file, unused(&file, DAMAGED))?;
            } else {
                fs::remove_file(&file)?;
            }
            oldest.remove();
        }
        Ok(())
    }

    /// Returns the newest of the oldest segments that are not needed.
    pub(super) fn last_unneeded(&self) -> Option<u64> {
        self.lock().last_unneeded()
    }

    /// Returns whether removing segments is worth a sync of those that stay: many can be removed, or those that stay
    /// have nothing that is needed.
    pub(super) fn is_worth_reclaiming(&self) -> bool {
        let inner = self.lock();
        let count = inner.last_unneeded().map_or(0, |last| inner.segments.range(..=last).count());
        count >= RECLAIMED_SEGMENTS || (count > 0 && count + 1 == inner.segments.len() && inner.is_unneeded())
    }

    /// Returns the segments' numbers, and how many bytes of each survive the loss of power.
    pub(super) fn synced(&self) -> Vec<(u64, u64)> {
        let inner = self.lock();
        inner.segments.values().map(|one| (one.number, one.synced.load(Ordering::Acquire))).collect()
    }

    /// Returns the length of all segments in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    pub(super) fn newest_number(&self) -> u64 {
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
        inner.segments.insert(number, Segment::open(number, file, direct));
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
        log_record::set_position(frame, segment.number, begin + first.len() as u64);
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
            Some((previous, segment)) => log_record::encode_segment_start(*previous, segment.len()?),
            None => log_record::encode_segment_start(0, 0),
        })
    }

    /// Returns the newest of the oldest segments that are not needed.
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

/// Locks the log for this process. `WouldBlock`: another process has it.
pub(super) fn lock_dir(dir: &Path) -> io::Result<File> {
    let lock = File::options().create(true).truncate(false).write(true).open(dir.join("lock"))?;
    hold(&lock)?;
    Ok(lock)
}

/// Ends the log where a power cut tore it. What follows is kept in other files; it was never promised to survive.
fn truncate_torn_tail(dir: &Path, last: &Segment, torn: &TornTail) -> io::Result<()> {
    let end = torn.end;
    tracing::warn!(dir = %dir.display(), segment = last.number, end, "the write-back log ends in an incomplete record, which is removed");
    let file = path(dir, last.number);
    if torn.must_be_kept {
        fs::copy(&file, unused(&file, LOST))?;
    }
    for number in numbers(dir)?.into_iter().filter(|number| *number > last.number) {
        let file = path(dir, number);
        fs::rename(&file, unused(&file, LOST))?;
    }
    last.file.set_len(end)?;
    last.file.sync_all()
}

/// Returns the number of damaged files in a directory that no log needs any more.
pub(super) fn damaged_files(dir: &Path) -> usize {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let is_damaged = |path: PathBuf| path.extension().is_some_and(|extension| extension == DAMAGED);
    entries.flatten().filter(|entry| is_damaged(entry.path())).count()
}

pub(super) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:016x}.log"))
}

/// Returns the numbers of the segments in a directory, ascending.
pub(super) fn numbers(dir: &Path) -> io::Result<Vec<u64>> {
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
pub(super) mod tests {
    use super::*;
    use std::cell::RefCell;
    use store::{ObjectKey, Precondition};

    thread_local! {
        /// Range of a segment that cannot be read on this thread.
        static UNREADABLE: RefCell<Option<(u64, Range<u64>)>> = const { RefCell::new(None) };
    }

    pub(in super::super) fn fail_if_unreadable(segment: u64, at: u64, len: u64) -> io::Result<()> {
        let is_hit = UNREADABLE.with_borrow(|bad| {
            bad.as_ref()
                .is_some_and(|(number, range)| *number == segment && at < range.end && range.start < at + len)
        });
        if is_hit { Err(rustix::io::Errno::IO.into()) } else { Ok(()) }
    }

    /// Runs a test while a range of a segment cannot be read.
    pub(in super::super) fn with_unreadable<T>(
        segment: u64,
        range: Range<u64>,
        run: impl FnOnce() -> T,
    ) -> T {
        UNREADABLE.set(Some((segment, range)));
        let done = run();
        UNREADABLE.set(None);
        done
    }

    fn delete(change: u64) -> Record {
        Record::Delete { change, key: ObjectKey::try_from("k").unwrap(), base: Precondition::None }
    }

    fn found(dir: &Path) -> (Log, Vec<(u64, Bytes)>) {
        let mut found = Vec::new();
        let log = Log::open(dir, |event| {
            let ScanEvent::Record(one) = event else { return Ok(()) };
            let Record::Delete { change, .. } = one.record else { panic!() };
            found.push((change, one.segment.read(&one.body)?));
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
            log.append(&delete(change), &Payload::from(vec![change as u8; 100])).unwrap();
        }
        log.sync().unwrap();
        drop(log);
        let whole = std::fs::read(path(dir.path(), 1)).unwrap();
        let expected = |count| (1..=count).map(|n| (n, Bytes::from(vec![n as u8; 100]))).collect::<Vec<_>>();
        for cut in [whole.len() - 1, whole.len() - 120] {
            std::fs::write(path(dir.path(), 1), &whole[..cut]).unwrap();
            assert_eq!(found(dir.path()).1, expected(2));
        }
        let mut damaged = whole.clone();
        damaged[whole.len() - 50] ^= 1;
        std::fs::write(path(dir.path(), 1), &damaged).unwrap();
        let (log, read) = found(dir.path());
        assert_eq!(read, expected(2));
        log.append(&delete(4), &Payload::from(vec![4; 100])).unwrap();
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
        log.append(&delete(1), &Payload::from(vec![1; 100])).unwrap();
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
        log.append(&delete(1), &Payload::default()).unwrap();
        log.reclaim().unwrap();
        let length = std::fs::metadata(path(dir.path(), 2)).unwrap().len();
        assert_eq!(log.synced(), [(2, length)]);
    }

    #[test]
    fn unneeded_segments_are_removed_from_the_oldest_on() {
        let dir = tempfile::tempdir().unwrap();
        let (log, _) = found(dir.path());
        let body = Payload::from(vec![0; SEGMENT_BYTES as usize]);
        let (first, _) = log.append(&delete(1), &body).unwrap();
        let (second, _) = log.append(&delete(2), &body).unwrap();
        log.append(&delete(3), &Payload::default()).unwrap();
        drop(second);
        log.reclaim().unwrap();
        assert_eq!(numbers(dir.path()).unwrap().len(), 3);
        drop(first);
        log.reclaim().unwrap();
        assert_eq!(numbers(dir.path()).unwrap(), [3]);
    }
}
