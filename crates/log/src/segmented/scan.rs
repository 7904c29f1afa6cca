//! Reads the log that an earlier process left: the whole records, and the ranges that damage hides.
//!
//! A power cut tears only records that no sync covered. The log ends at such a place: nothing behind it was promised
//! to survive, and later records may refer to bytes that are gone. Damage before the last sync is corruption of the
//! disk: reading continues at the next whole frame, and the damaged range is reported.
//!
//! Invariant: no bytes of an object are taken for a frame. The scan behind damage accepts only a head whose checksum
//! covers its own position, so that a copy of a log inside an object is not read as part of the log.

use super::log::{FoundRecord, Segment, Segments, numbers, path};
use super::log_record::{self, HEAD_V2_BYTES, Head, Record};
use crate::log_encoding::Crc;
use crate::medium::{SECTOR_BYTES, is_medium_error};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a body to read and check at a time.
const READ_BYTES: u64 = 1 << 20;

/// Content of a range of the log.
pub(super) enum ScanEvent {
    /// A whole record.
    Record(FoundRecord),
    /// A range that was synced and cannot be read back as it was written.
    Damaged(Damage),
}

/// A damaged range of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) segment: u64,
    pub(super) range: Range<u64>,
    /// The record that was there, if its header can be decoded. The header may be damaged too.
    pub(super) record: Option<Record>,
}

/// Result of reading a log.
pub(super) struct Scanned {
    pub(super) segments: Segments,
    /// The torn end of the log, if it does not end with its last file.
    pub(super) torn: Option<TornTail>,
}

/// The place where a power cut tore the log, in the last segment that counts.
pub(super) struct TornTail {
    pub(super) end: u64,
    /// Frames follow the place, or it is not known what was synced.
    pub(super) must_be_kept: bool,
}

/// Content of a segment at an offset.
enum Frame {
    Whole(Record, Range<u64>),
    Damaged { end: u64, record: Option<Record> },
}

/// Reads the log in a directory, which may be missing. Changes nothing.
pub(super) fn scan(dir: &Path, mut each: impl FnMut(ScanEvent) -> io::Result<()>) -> io::Result<Scanned> {
    let mark = SyncMark::read(dir);
    let mut segments: Segments = BTreeMap::new();
    let numbers = numbers(dir)?;
    for number in &numbers {
        let number = *number;
        let file = File::options().read(true).write(true).open(path(dir, number))?;
        let segment = Segment::new(number, file);
        let len = segment.len()?;
        let is_last = numbers.last() == Some(&number);
        let mut at = 0;
        while at < len {
            match read_frame(&segment, at, len)? {
                Frame::Whole(Record::SegmentStart { previous, end }, body) => {
                    at = body.end;
                    let Some(earlier) = segments.get(&previous) else { continue };
                    let left = earlier.len()?;
                    if left < end && !mark.covers(previous, left).unwrap_or(true) {
                        segments.retain(|number, _| *number <= previous);
                        return Ok(Scanned {
                            segments,
                            torn: Some(TornTail { end: left, must_be_kept: true }),
                        });
                    }
                    if left < end {
                        each(earlier.damaged(left..end, None))?;
                    }
                }
                Frame::Whole(record, body) => {
                    at = body.end;
                    each(ScanEvent::Record(FoundRecord { record, segment: segment.clone(), body }))?;
                }
                Frame::Damaged { end, record } => {
                    let goes_on = end < len || !is_last;
                    if !mark.covers(number, at).unwrap_or(goes_on) {
                        segments.insert(number, segment);
                        let must_be_kept = goes_on || mark == SyncMark::UNKNOWN;
                        return Ok(Scanned { segments, torn: Some(TornTail { end: at, must_be_kept }) });
                    }
                    each(segment.damaged(at..end, record))?;
                    at = end;
                }
            }
        }
        if let Some((_, synced)) = mark.0.filter(|(marked, synced)| *marked == number && len < *synced) {
            each(segment.damaged(len..synced, None))?;
        }
        segments.insert(number, segment);
    }
    Ok(Scanned { segments, torn: None })
}

/// Position up to which the log is known to be synced: a segment and an offset in it. All earlier segments are synced
/// too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SyncMark(Option<(u64, u64)>);

/// Name of the file that keeps the mark.
pub(super) const MARK_FILE: &str = "synced";
const MARK_BYTES: usize = 20;

impl SyncMark {
    /// Logs of older versions have no mark.
    const UNKNOWN: Self = Self(None);

    pub(super) fn at(segment: u64, end: u64) -> Self {
        Self(Some((segment, end)))
    }

    /// Reads the mark. A missing or damaged one is unknown.
    fn read(dir: &Path) -> Self {
        let Ok(bytes) = std::fs::read(dir.join(MARK_FILE)) else { return Self::UNKNOWN };
        let Some((mark, [])) = bytes.split_first_chunk::<MARK_BYTES>() else { return Self::UNKNOWN };
        let number =
            |range: Range<usize>| mark[range].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let found = Self::at(number(0..8), number(8..16));
        if found.encode() == Some(*mark) { found } else { Self::UNKNOWN }
    }

    /// Returns the content of the file: segment, offset, CRC-32C of both.
    pub(super) fn encode(&self) -> Option<[u8; MARK_BYTES]> {
        let (segment, end) = self.0?;
        let mut bytes = [0; MARK_BYTES];
        bytes[..8].copy_from_slice(&segment.to_le_bytes());
        bytes[8..16].copy_from_slice(&end.to_le_bytes());
        let mut crc = Crc::default();
        crc.add(&bytes[..16]);
        bytes[16..].copy_from_slice(&crc.sum().to_le_bytes());
        Some(bytes)
    }

    /// Returns whether the byte at an offset was synced; `None`: unknown.
    fn covers(&self, segment: u64, at: u64) -> Option<bool> {
        self.0.map(|mark| (segment, at) < mark)
    }
}

impl Segment {
    /// Reports a damaged range. The segment's file is kept from now on.
    fn damaged(&self, range: Range<u64>, record: Option<Record>) -> ScanEvent {
        self.preserve();
        ScanEvent::Damaged(Damage { segment: self.number, range, record })
    }
}

/// Reads the frame that begins at an offset.
fn read_frame(segment: &Segment, at: u64, len: u64) -> io::Result<Frame> {
    let heads = match try_read(segment, at..len.min(at + HEAD_V2_BYTES as u64))? {
        Some(bytes) => log_record::parse_heads(&bytes, segment.number, at),
        None => Vec::new(),
    };
    for head in &heads {
        if let Some((record, body)) = read_whole_record(segment, at, len, head)? {
            return Ok(Frame::Whole(record, body));
        }
    }
    let mut end = None;
    for head in &heads {
        let claimed = head.end(at).unwrap_or(u64::MAX);
        if head.is_position_valid || claimed == len || begins_frame(segment, claimed, len)? {
            end = Some((claimed.min(len), read_header(segment, at, len, head)?));
            break;
        }
    }
    let (end, record) = match end {
        Some(end) => end,
        None => (next_positioned_head(segment, at + 1, len)?, None),
    };
    Ok(Frame::Damaged { end, record })
}

/// Returns the record of a frame and the range of its body, if its checksum holds.
fn read_whole_record(
    segment: &Segment,
    at: u64,
    len: u64,
    head: &Head,
) -> io::Result<Option<(Record, Range<u64>)>> {
    let Some(end) = head.end(at).filter(|end| *end <= len) else { return Ok(None) };
    let header_at = at + head.head_bytes as u64;
    let body_at = header_at + head.header_bytes as u64;
    let Some(header) = try_read(segment, header_at..body_at)? else { return Ok(None) };
    let mut crc = Crc::default();
    crc.add(&head.lengths);
    crc.add(&header);
    for start in (body_at..end).step_by(READ_BYTES as usize) {
        let Some(bytes) = try_read(segment, start..end.min(start + READ_BYTES))? else { return Ok(None) };
        crc.add(&bytes);
    }
    if crc.sum() != head.checksum {
        return Ok(None);
    }
    match log_record::decode(&header) {
        Some(record) => Ok(Some((record, body_at..end))),
        None => Err(io::Error::new(
            ErrorKind::InvalidData,
            "the write-back log was written by a newer version of Tenon",
        )),
    }
}

/// Decodes the header of a damaged frame.
fn read_header(segment: &Segment, at: u64, len: u64, head: &Head) -> io::Result<Option<Record>> {
    let header_at = at + head.head_bytes as u64;
    let body_at = header_at + head.header_bytes as u64;
    if body_at > len {
        return Ok(None);
    }
    Ok(try_read(segment, header_at..body_at)?.and_then(|header| log_record::decode(&header)))
}

/// Returns whether a frame certainly begins at an offset.
fn begins_frame(segment: &Segment, at: u64, len: u64) -> io::Result<bool> {
    if at >= len {
        return Ok(false);
    }
    let Some(bytes) = try_read(segment, at..len.min(at + HEAD_V2_BYTES as u64))? else { return Ok(false) };
    for head in log_record::parse_heads(&bytes, segment.number, at) {
        if head.is_position_valid || read_whole_record(segment, at, len, &head)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the offset of the next head with a valid checksum of its position, or the segment's end.
fn next_positioned_head(segment: &Segment, from: u64, len: u64) -> io::Result<u64> {
    let mut start = from;
    while start + HEAD_V2_BYTES as u64 <= len {
        let end = len.min(start + READ_BYTES);
        let bytes = read_leniently(segment, start..end)?;
        let starts = bytes.windows(HEAD_V2_BYTES).enumerate();
        for (offset, head) in starts.filter(|(_, head)| head.starts_with(&log_record::MAGIC_V2)) {
            let at = start + offset as u64;
            if log_record::parse_heads(head, segment.number, at)
                .first()
                .is_some_and(|head| head.is_position_valid)
            {
                return Ok(at);
            }
        }
        if end == len {
            break;
        }
        start = end - HEAD_V2_BYTES as u64 + 1;
    }
    Ok(len)
}

/// Reads bytes of a segment; `None` if the disk cannot read them.
fn try_read(segment: &Segment, range: Range<u64>) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    match segment.read_into(&mut bytes, range.start) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if is_medium_error(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads bytes of a segment, with zeros for those that the disk cannot read.
fn read_leniently(segment: &Segment, range: Range<u64>) -> io::Result<Vec<u8>> {
    if let Some(bytes) = try_read(segment, range.clone())? {
        return Ok(bytes);
    }
    let mut bytes = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min((at / SECTOR_BYTES + 1) * SECTOR_BYTES);
        bytes.extend(try_read(segment, at..end)?.unwrap_or_else(|| vec![0; (end - at) as usize]));
        at = end;
    }
    Ok(bytes)
}

/// Damages a frame of a log so that no change is lost: its magic or the checksum of its position, or any byte of a
/// frame that only says that something is done. For simulators. `pick` returns a number below its argument. Returns a
/// description of the damage.
pub fn rot(dir: &Path, mut pick: impl FnMut(u64) -> u64) -> io::Result<Option<String>> {
    let mut frames: Vec<(Arc<Segment>, u64, u64, bool)> = Vec::new();
    let mut ends = BTreeMap::new();
    let mark = SyncMark::read(dir);
    scan(dir, |event| {
        if let ScanEvent::Record(found) = event {
            let begin = ends.insert(found.segment.number, found.body.end);
            // Damage that no sync covered would end the log.
            let is_synced = begin.is_some_and(|begin| mark.covers(found.segment.number, begin) == Some(true));
            let is_spare = is_synced && matches!(found.record, Record::NotesDone { .. });
            // The first frame of a segment follows the one that begins the segment.
            frames.extend(begin.map(|begin| (found.segment.clone(), begin, found.body.end, is_spare)));
        }
        Ok(())
    })?;
    if frames.is_empty() {
        return Ok(None);
    }
    let (segment, begin, end, is_spare) = frames.swap_remove(pick(frames.len() as u64) as usize);
    let at = match is_spare {
        true => begin + pick(end - begin),
        false if pick(2) == 0 => begin + pick(log_record::MAGIC_V2.len() as u64),
        false => begin + log_record::HEAD_V1_BYTES as u64 + pick(4),
    };
    segment.flip(at, 1 << pick(8))?;
    Ok(Some(format!("byte {at} of log {}", segment.number)))
}

#[cfg(test)]
mod tests {
    use super::super::log::Log;
    use super::super::log::tests::with_unreadable;
    use super::*;
    use std::fs;
    use store::{ObjectKey, Payload, Precondition};

    fn delete(change: u64) -> Record {
        Record::Delete { change, key: ObjectKey::try_from("k").unwrap(), base: Precondition::None }
    }

    /// Appends records with these bodies, syncs them, and begins another segment as the next process does.
    fn write(dir: &Path, bodies: &[Vec<u8>]) {
        let log = Log::open(dir, |_| Ok(())).unwrap();
        for (change, body) in bodies.iter().enumerate() {
            log.append(&delete(change as u64), &Payload::from(body.clone())).unwrap();
        }
        log.sync().unwrap();
        drop(log);
        let log = Log::open(dir, |_| Ok(())).unwrap();
        log.append(&delete(1000), &Payload::default()).unwrap();
        log.sync().unwrap();
    }

    /// Opens the log. Returns the changes that are read and the damaged ranges.
    fn opened(dir: &Path) -> (Vec<u64>, Vec<Damage>) {
        let (mut changes, mut damages) = (Vec::new(), Vec::new());
        let each = |event| {
            match event {
                ScanEvent::Record(FoundRecord { record: Record::Delete { change, .. }, .. }) => {
                    changes.push(change)
                }
                ScanEvent::Record(found) => panic!("{:?}", found.record),
                ScanEvent::Damaged(damage) => damages.push(damage),
            }
            Ok(())
        };
        drop(Log::open(dir, each).unwrap());
        (changes, damages)
    }

    fn copy(from: &Path) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let from = entry.unwrap().path();
            fs::copy(&from, dir.path().join(from.file_name().unwrap())).unwrap();
        }
        dir
    }

    fn flip(path: &Path, at: usize) {
        let mut bytes = fs::read(path).unwrap();
        bytes[at] ^= 0x10;
        fs::write(path, bytes).unwrap();
    }

    /// One flipped byte in a synced segment cut off every later change: 97 of 100 that `sync` had acknowledged.
    #[test]
    fn one_flipped_byte_loses_one_record_and_nothing_is_truncated() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &(0..3).map(|n| vec![n; 20 * usize::from(n)]).collect::<Vec<_>>());
        let len = fs::metadata(path(dir.path(), 1)).unwrap().len();
        let all: Vec<u64> = (0..3).chain([1000]).collect();
        for at in 0..len as usize {
            let after = copy(dir.path());
            flip(&path(after.path(), 1), at);
            let (changes, damages) = opened(after.path());
            let missing: Vec<_> = all.iter().filter(|change| !changes.contains(change)).collect();
            assert!(missing.len() <= 1 && damages.len() <= 1 && changes.is_sorted(), "{at}: {missing:?}");
            assert!(missing.len() <= damages.len(), "byte {at} lost a record without a damaged range");
            assert_eq!(fs::metadata(path(after.path(), 1)).unwrap().len(), len, "byte {at}");
            assert_eq!(opened(after.path()).0, changes, "the next process reads the same changes");
        }
    }

    #[test]
    fn an_unreadable_sector_loses_the_records_in_it() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &(0..12).map(|n| vec![n; 3000]).collect::<Vec<_>>());
        let len = fs::metadata(path(dir.path(), 1)).unwrap().len();
        for start in (0..len).step_by(SECTOR_BYTES as usize) {
            let after = copy(dir.path());
            let (changes, damages) = with_unreadable(1, start..start + SECTOR_BYTES, || opened(after.path()));
            // The next head behind the sector is found. Up to three records have bytes in the sector.
            assert!(changes.len() >= 13 - 3 && changes.last() == Some(&1000), "{start}: {changes:?}");
            assert!(!damages.is_empty());
            assert_eq!(fs::metadata(path(after.path(), 1)).unwrap().len(), len);
        }
    }

    #[test]
    fn a_log_inside_an_object_is_never_read_as_the_log() {
        let other = tempfile::tempdir().unwrap();
        write(other.path(), &[vec![1; 10], vec![2; 10]]);
        let inner = fs::read(path(other.path(), 1)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &[vec![], inner, vec![]]);
        let len = fs::metadata(path(dir.path(), 1)).unwrap().len() as usize;
        for at in 0..len {
            let after = copy(dir.path());
            flip(&path(after.path(), 1), at);
            let changes = opened(after.path()).0;
            assert!(changes.len() >= 3 && changes.windows(2).all(|two| two[0] < two[1]), "{at}: {changes:?}");
        }
    }

    /// Returns a segment as versions without the checksum of the position wrote it.
    fn old_segment(bodies: &[&[u8]]) -> Vec<u8> {
        let mut segment = Vec::new();
        for (change, body) in bodies.iter().enumerate() {
            let mut frame = log_record::encode(&delete(change as u64), &[body]);
            frame.drain(log_record::HEAD_V1_BYTES..HEAD_V2_BYTES);
            frame[3] = b'1';
            segment.extend(frame);
            segment.extend(*body);
        }
        segment
    }

    #[test]
    fn logs_of_older_versions_are_read_with_and_without_damage() {
        let old = old_segment(&[b"one", b"two", b"three", b"four"]);
        let make = |bytes: &[u8]| {
            let dir = tempfile::tempdir().unwrap();
            fs::write(path(dir.path(), 1), bytes).unwrap();
            fs::write(path(dir.path(), 2), old_segment(&[b"a"])).unwrap();
            dir
        };
        assert_eq!(opened(make(&old).path()), (vec![0, 1, 2, 3, 0], Vec::new()));
        for at in 0..old.len() {
            let mut bytes = old.clone();
            bytes[at] ^= 4;
            let dir = make(&bytes);
            let (changes, damages) = opened(dir.path());
            assert!(
                changes.last() == Some(&0) && changes.len() + 4 * damages.len() >= 5,
                "{at}: {changes:?}"
            );
            // If no length is damaged, only one record is lost.
            let is_length = (0..20).contains(&(at % (old.len() / 4)));
            assert!(is_length || changes.len() >= 2, "{at}: {changes:?}");
            assert_eq!(fs::read(path(dir.path(), 1)).unwrap(), bytes);
        }
    }

    /// After a power cut the log is what was appended up to one moment, because a later record may refer to what an
    /// earlier one lost.
    #[test]
    fn s154_an_unsynced_log_ends_at_the_first_damage_and_the_rest_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::open(dir.path(), |_| Ok(())).unwrap();
        let append = |change| log.append(&delete(change), &Payload::from(vec![1; 50])).unwrap().1.end;
        append(0);
        log.sync().unwrap();
        let synced = append(1);
        append(2);
        drop(log);
        let torn = path(dir.path(), 1);
        let whole = fs::read(&torn).unwrap();
        flip(&torn, synced as usize - 5);
        let (changes, damages) = opened(dir.path());
        assert_eq!((changes, damages), (vec![0], vec![]));
        assert_eq!(fs::metadata(torn.with_extension("lost")).unwrap().len(), whole.len() as u64);
    }

    #[test]
    fn a_synced_end_that_is_gone_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &[vec![1; 50], vec![2; 50]]);
        let newest = path(dir.path(), 2);
        let len = fs::metadata(&newest).unwrap().len();
        File::options().write(true).open(&newest).unwrap().set_len(len - 1).unwrap();
        let (changes, damages) = opened(dir.path());
        assert_eq!((changes, damages.len()), (vec![0, 1], 2));
    }

    #[test]
    fn rot_loses_no_change() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &(0..8).map(|n| vec![n; 30]).collect::<Vec<_>>());
        for seed in 0..40 {
            let after = copy(dir.path());
            let mut state: u64 = seed;
            let pick = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) % below
            };
            rot(after.path(), pick).unwrap().unwrap();
            assert_eq!(opened(after.path()).0.len(), 9);
        }
    }
}
