//! The log on disk: segments that are written at their end, read anywhere, and removed from the oldest on.
//!
//! Invariants: a record is appended whole or counts as not there; after [`Log::sync`] what was appended before
//! survives the loss of power; a segment goes only when nothing refers to it nor to an older one, so that what
//! undoes a record never goes before it.

use super::record::{self, FRAME_BYTES, Record};
use crate::wire::Crc;
use crate::{Payload, hold};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A segment is full at this length, in bytes.
const SEGMENT_BYTES: u64 = 64 << 20;
/// Bodies up to this length are written together with what describes them.
const WRITTEN_AT_ONCE: usize = 64 << 10;
/// So much of the disk is left to records without bytes of objects.
const RESERVE_BYTES: u64 = 4 << 20;
/// The disk is asked for its room once for so many bytes of objects.
const ASKED_EVERY: u64 = 1 << 20;
/// Bodies are checked in pieces of this length.
const READ_AT_ONCE: usize = 1 << 20;

/// A file of the log. Who needs what is in it holds it.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    file: File,
    /// So many bytes survive the loss of power, as far as this process knows.
    synced: AtomicU64,
}

impl Segment {
    fn new(number: u64, file: File) -> Arc<Self> {
        Arc::new(Self { number, file, synced: AtomicU64::new(0) })
    }

    fn sync(&self) -> io::Result<()> {
        let len = self.file.metadata()?.len();
        self.file.sync_data()?;
        self.synced.fetch_max(len, Ordering::AcqRel);
        Ok(())
    }

    /// Whether what was appended up to here survives the loss of power.
    pub(super) fn is_synced_to(&self, end: u64) -> bool {
        self.synced.load(Ordering::Acquire) >= end
    }

    pub(super) fn read(&self, range: &Range<u64>) -> io::Result<Bytes> {
        let mut bytes = BytesMut::zeroed((range.end - range.start) as usize);
        self.file.read_exact_at(&mut bytes, range.start)?;
        Ok(bytes.freeze())
    }
}

type Segments = BTreeMap<u64, Arc<Segment>>;

/// The segments of a directory.
#[derive(Debug)]
pub(super) struct Log {
    dir: PathBuf,
    inner: Mutex<Inner>,
    /// Held as long as this is open.
    _lock: File,
    /// One sync at a time; who waits for it is content with the next.
    syncing: Mutex<u64>,
}

#[derive(Debug)]
struct Inner {
    segments: Segments,
    /// The number of the next segment.
    next: u64,
    /// Where the newest ends.
    end: u64,
    /// Bytes ever appended here.
    appended: u64,
    /// The oldest segment that may hold what was not synced.
    unsynced_from: u64,
    /// So many bytes of objects the disk has room for, as it said when it was asked.
    room: u64,
}

/// A record found in a log, and where its body is.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) record: Record,
    pub(super) segment: Arc<Segment>,
    pub(super) body: Range<u64>,
}

impl Log {
    /// Opens the log in a directory, made if it is missing, and reads it to its end: the first record that is not
    /// whole, which was never promised to anybody.
    pub(super) fn open(dir: &Path, mut each: impl FnMut(Found) -> io::Result<()>) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let lock = lock(dir)?;
        let (segments, lost_from) = scan(dir, &mut each)?;
        if let Some((last, end)) = segments.last_key_value().zip(lost_from) {
            cut_off(dir, last.1, end)?;
        }
        let next = segments.last_key_value().map_or(1, |(number, _)| number + 1);
        // A process that ended need not have synced what it appended: nothing may survive it that came later.
        segments.values().try_for_each(|segment| segment.sync())?;
        let inner = Inner { segments, next, end: 0, appended: 0, unsynced_from: next, room: 0 };
        let log = Self { dir: dir.to_owned(), inner: Mutex::new(inner), _lock: lock, syncing: Mutex::new(0) };
        log.begin_segment(&mut log.lock())?;
        Ok(log)
    }

    /// Appends a record with a body. Returns where the body is.
    pub(super) fn append(&self, record: &Record, body: &Payload) -> io::Result<(Arc<Segment>, Range<u64>)> {
        let pieces: Vec<&[u8]> = body.pieces().iter().map(Bytes::as_ref).collect();
        let frame = record::encode(record, &pieces);
        let mut inner = self.lock();
        if inner.end >= SEGMENT_BYTES {
            self.begin_segment(&mut inner)?;
        }
        let appended = match self.take_room_for(&mut inner, record, body) {
            Ok(()) => inner.append(&frame, &pieces),
            Err(full) => Err(full),
        };
        match appended {
            // A disk with less room than a segment is full of what nobody needs.
            Err(error) if error.kind() == ErrorKind::StorageFull && inner.is_unneeded() => {
                self.begin_segment(&mut inner)?;
                inner.segments.values().try_for_each(|segment| segment.sync())?;
                if let Some(last) = inner.last_unneeded() {
                    self.remove_up_to(&mut inner, last)?;
                }
                inner.append(&frame, &pieces)
            }
            appended => appended,
        }
    }

    /// Bytes of objects leave room on the disk for what says that objects are done, and for names.
    fn take_room_for(&self, inner: &mut Inner, record: &Record, body: &Payload) -> io::Result<()> {
        if body.is_empty() || matches!(record, Record::Note { .. }) {
            return Ok(());
        }
        if inner.room < body.len() {
            let disk = rustix::fs::statvfs(&self.dir)?;
            let room = (disk.f_bavail * disk.f_frsize).saturating_sub(RESERVE_BYTES);
            inner.room = room.min(body.len().next_multiple_of(ASKED_EVERY));
        }
        inner.room = inner.room.checked_sub(body.len()).ok_or(ErrorKind::StorageFull)?;
        Ok(())
    }

    /// Returns when everything appended before survives the loss of power.
    pub(super) fn sync(&self) -> io::Result<()> {
        let wanted = self.lock().appended;
        let mut synced = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        if *synced >= wanted {
            return Ok(());
        }
        let (appended, newest, segments) = {
            let inner = self.lock();
            let unsynced = inner.segments.range(inner.unsynced_from..).map(|(_, segment)| segment.clone());
            (inner.appended, inner.newest().number, unsynced.collect::<Vec<_>>())
        };
        segments.iter().try_for_each(|segment| segment.sync())?;
        self.lock().unsynced_from = newest;
        *synced = appended;
        Ok(())
    }

    /// Removes the oldest segments that nobody needs, once the records that say so survive the loss of power.
    pub(super) fn reclaim(&self) -> io::Result<()> {
        let Some(last) = self.last_unneeded() else { return Ok(()) };
        self.sync()?;
        self.remove_up_to(&mut self.lock(), last)
    }

    fn remove_up_to(&self, inner: &mut Inner, last: u64) -> io::Result<()> {
        while let Some(oldest) = inner.segments.first_entry()
            && *oldest.key() <= last
        {
            fs::remove_file(path(&self.dir, *oldest.key()))?;
            oldest.remove();
        }
        Ok(())
    }

    /// The newest of the oldest segments that nobody needs.
    pub(super) fn last_unneeded(&self) -> Option<u64> {
        self.lock().last_unneeded()
    }

    /// The segments, and how many bytes of each survive the loss of power.
    pub(super) fn synced(&self) -> Vec<(u64, u64)> {
        let inner = self.lock();
        inner.segments.values().map(|one| (one.number, one.synced.load(Ordering::Acquire))).collect()
    }

    /// Length of all segments in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let inner = self.lock();
        (inner.segments.len() as u64 - 1) * SEGMENT_BYTES + inner.end
    }

    pub(super) fn newest_number(&self) -> u64 {
        self.lock().newest().number
    }

    fn begin_segment(&self, inner: &mut Inner) -> io::Result<()> {
        let number = inner.next;
        // Whatever becomes of it, the number is used up.
        inner.next += 1;
        let file = File::options().read(true).write(true).create_new(true).open(path(&self.dir, number))?;
        File::open(&self.dir)?.sync_all()?;
        inner.segments.insert(number, Segment::new(number, file));
        inner.end = 0;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn append(&mut self, frame: &[u8], pieces: &[&[u8]]) -> io::Result<(Arc<Segment>, Range<u64>)> {
        let segment = self.newest();
        let (begin, body_at) = (self.end, self.end + frame.len() as u64);
        if let Err(error) = write_all(&segment.file, begin, frame, pieces) {
            // Half a record would hide what comes after it.
            segment.file.set_len(begin)?;
            return Err(error);
        }
        self.end = body_at + pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        self.appended += self.end - begin;
        Ok((segment, body_at..self.end))
    }

    /// The newest of the oldest segments that nobody needs.
    fn last_unneeded(&self) -> Option<u64> {
        let old = self.segments.len() - 1;
        let unneeded =
            self.segments.iter().take(old).take_while(|(_, segment)| Arc::strong_count(segment) == 1);
        unneeded.last().map(|(number, _)| *number)
    }

    /// Whether the newest segment holds something, but nothing that anybody needs.
    fn is_unneeded(&self) -> bool {
        self.end > 0
            && self.segments.last_key_value().is_some_and(|(_, newest)| Arc::strong_count(newest) == 1)
    }

    fn newest(&self) -> Arc<Segment> {
        match self.segments.last_key_value() {
            Some((_, segment)) => segment.clone(),
            None => unreachable!("a log is opened with a segment"),
        }
    }
}

/// One process has the log. `WouldBlock`: another has it.
pub(super) fn lock(dir: &Path) -> io::Result<File> {
    let lock = File::options().create(true).truncate(false).write(true).open(dir.join("lock"))?;
    hold(&lock)?;
    Ok(lock)
}

/// Small records in one call, so that a crash mostly finds them whole or not at all.
fn write_all(file: &File, at: u64, frame: &[u8], body: &[&[u8]]) -> io::Result<()> {
    let body_bytes: usize = body.iter().map(|piece| piece.len()).sum();
    if body_bytes <= WRITTEN_AT_ONCE {
        return file.write_all_at(&[&[frame], body].concat().concat(), at);
    }
    file.write_all_at(frame, at)?;
    let mut at = at + frame.len() as u64;
    for piece in body {
        file.write_all_at(piece, at)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// Hands every whole record on; returns where the last one ends.
fn read_all(segment: &Arc<Segment>, each: &mut impl FnMut(Found) -> io::Result<()>) -> io::Result<u64> {
    let mut at = 0;
    while let Some((record, body)) = read_one(segment, at)? {
        at = body.end;
        each(Found { record, segment: segment.clone(), body })?;
    }
    Ok(at)
}

/// Reads the log in a directory, which may be missing, up to the first record that is not whole. The segments up to
/// there, and if it is not the end of all, where in the last of them it is.
pub(super) fn scan(
    dir: &Path,
    mut each: impl FnMut(Found) -> io::Result<()>,
) -> io::Result<(Segments, Option<u64>)> {
    let mut segments = BTreeMap::new();
    for number in numbers(dir)? {
        let file = File::options().read(true).write(true).open(path(dir, number))?;
        let segment = Segment::new(number, file);
        let end = read_all(&segment, &mut each)?;
        let is_whole = end == segment.file.metadata()?.len();
        segments.insert(number, segment);
        if !is_whole {
            return Ok((segments, Some(end)));
        }
    }
    Ok((segments, None))
}

/// Nobody was promised half a record, nor what was appended after it: it was never synced. Kept aside all the same.
fn cut_off(dir: &Path, last: &Segment, end: u64) -> io::Result<()> {
    tracing::warn!(dir = %dir.display(), segment = last.number, end, "the write-back log ends in half a record");
    last.file.set_len(end)?;
    last.file.sync_all()?;
    for number in numbers(dir)?.into_iter().filter(|number| *number > last.number) {
        fs::rename(path(dir, number), path(dir, number).with_extension("lost"))?;
    }
    Ok(())
}

fn read_one(segment: &Segment, at: u64) -> io::Result<Option<(Record, Range<u64>)>> {
    let mut frame = [0; FRAME_BYTES];
    match segment.file.read_exact_at(&mut frame, at) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let Some((header_bytes, body_bytes)) = record::lengths(&frame) else { return Ok(None) };
    let header_at = at + FRAME_BYTES as u64;
    let body_at = header_at + header_bytes as u64;
    let Some(end) = body_at.checked_add(body_bytes) else { return Ok(None) };
    if end > segment.file.metadata()?.len() {
        return Ok(None);
    }
    let header = segment.read(&(header_at..body_at))?;
    let mut crc = Crc::default();
    crc.add(&frame[8..]);
    crc.add(&header);
    for start in (body_at..end).step_by(READ_AT_ONCE) {
        crc.add(&segment.read(&(start..end.min(start + READ_AT_ONCE as u64)))?);
    }
    if crc.sum() != record::checksum(&frame) {
        return Ok(None);
    }
    match record::decode(&header) {
        Some(record) => Ok(Some((record, body_at..end))),
        None => {
            Err(io::Error::new(ErrorKind::InvalidData, "the write-back log was written by a newer Tenon"))
        }
    }
}

fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:016x}.log"))
}

/// The segments of a directory, ascending.
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
    use crate::{ObjectKey, Precondition};

    fn delete(change: u64) -> Record {
        Record::Delete { change, key: ObjectKey::try_from("k").unwrap(), base: Precondition::None }
    }

    fn found(dir: &Path) -> (Log, Vec<(u64, Bytes)>) {
        let mut found = Vec::new();
        let log = Log::open(dir, |one| {
            let Record::Delete { change, .. } = one.record else { panic!() };
            found.push((change, one.segment.read(&one.body)?));
            Ok(())
        });
        (log.unwrap(), found)
    }

    #[test]
    fn what_was_appended_is_found_and_half_a_record_is_not() {
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
        for cut in [whole.len() - 1, whole.len() * 2 / 3 + 1] {
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

    /// A process ended and did not sync what it had acknowledged; the next one's sync was content with its own segment.
    /// What was closed before the end and synced after it did not survive the loss of power, nor did names whose old
    /// content had gone; and where the older segment lost its end between two records, the newer one was read as if
    /// nothing were missing (worlds of files 292, 476, 624 and 20660).
    #[test]
    fn what_earlier_processes_appended_is_synced_before_anything_follows() {
        let dir = tempfile::tempdir().unwrap();
        let (log, _) = found(dir.path());
        log.append(&delete(1), &Payload::from(vec![1; 100])).unwrap();
        drop(log);
        let (log, _) = found(dir.path());
        let length = std::fs::metadata(path(dir.path(), 1)).unwrap().len();
        assert_eq!(log.synced(), [(1, length), (2, 0)]);
    }

    /// A segment was removed when what says that nobody needs it was appended, and not synced. When the power went then,
    /// a record was left whose bytes were gone, and the log could not be opened any more (world of files 20060).
    #[test]
    fn a_segment_goes_after_what_says_that_it_may() {
        let dir = tempfile::tempdir().unwrap();
        drop(found(dir.path()));
        let (log, _) = found(dir.path());
        log.append(&delete(1), &Payload::default()).unwrap();
        log.reclaim().unwrap();
        let length = std::fs::metadata(path(dir.path(), 2)).unwrap().len();
        assert_eq!(log.synced(), [(2, length)]);
    }

    #[test]
    fn segments_go_from_the_oldest_when_nobody_needs_them() {
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
