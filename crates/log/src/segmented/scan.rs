//! Reads the log that an earlier process left: the whole records, and the ranges that damage hides.
//!
//! Invariant: no bytes of an object are taken for a frame. The scan behind damage accepts only a head whose checksum
//! covers its own position, so that a copy of a log inside an object is not read as part of the log.

use super::frame::{self, HEAD_V2_BYTES, Head};
use super::{MARK_FILE, ReadFaults, Segment, Segments, numbers, path};
use crate::sync_mark::SyncMark;
use crate::{BadPlace, Crc, Verdict, medium};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a body to read and check at a time.
const READ_BYTES: u64 = 1 << 20;

/// Content of a range of the log.
#[derive(Debug)]
pub enum ScanEvent {
    /// An undamaged record.
    Entry(Entry),
    /// A range that was synced, or precedes whole records, and cannot be read back as it was written.
    Damaged(Damage),
}

/// A record of a log.
#[derive(Debug)]
pub struct Entry {
    /// The header.
    pub header: Vec<u8>,
    /// The segment that has the record.
    pub segment: Arc<Segment>,
    /// The range of the record's body in the segment's file.
    pub body: Range<u64>,
}

/// A damaged range of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Number of the segment.
    pub segment: u64,
    /// The range of damaged bytes in the segment's file.
    pub range: Range<u64>,
    /// The header of the record that was there, if it can be read. It may be damaged too.
    pub header: Option<Vec<u8>>,
}

/// The segments of a log that was read, and where it is torn.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) segments: Segments,
    /// The place where the log is torn; `None` if it ends with its last file.
    pub(super) torn: Option<TornTail>,
}

/// The place where a power cut tore the log, in the last segment that counts.
#[derive(Debug)]
pub(super) struct TornTail {
    pub(super) end: u64,
    /// Frames follow the place, or it is not known what was synced.
    pub(super) must_be_kept: bool,
}

/// Content of a segment at an offset.
enum Frame {
    Whole { header: Vec<u8>, body: Range<u64> },
    Bad { end: u64, header: Option<Vec<u8>> },
}

/// Reads the log in a directory, which may be missing, up to its end. Returns the numbers of its segments. Changes
/// nothing.
pub fn scan(dir: &Path, each: impl FnMut(ScanEvent) -> io::Result<()>) -> io::Result<Vec<u64>> {
    Ok(read(dir, &ReadFaults::default(), each)?.segments.into_keys().collect())
}

/// Reads the log in a directory, which may be missing. Changes nothing.
pub(super) fn read(
    dir: &Path,
    faults: &ReadFaults,
    mut each: impl FnMut(ScanEvent) -> io::Result<()>,
) -> io::Result<Scanned> {
    let mark = SyncMark::read(&dir.join(MARK_FILE));
    let mut segments: Segments = BTreeMap::new();
    let numbers = numbers(dir)?;
    for number in numbers.iter().copied() {
        let file = File::options().read(true).write(true).open(path(dir, number))?;
        let segment = Segment::open(number, file, None, faults.clone());
        let len = segment.len_bytes()?;
        let is_last = numbers.last() == Some(&number);
        let mut at = 0;
        while at < len {
            match read_frame(&segment, at, len)? {
                Frame::Whole { header, body } => {
                    at = body.end;
                    let Some((previous, end)) = frame::decode_segment_start(&header) else {
                        each(ScanEvent::Entry(Entry { header, segment: segment.clone(), body }))?;
                        continue;
                    };
                    let Some(earlier) = segments.get(&previous) else { continue };
                    let left = earlier.len_bytes()?;
                    if left < end {
                        // The end of the previous segment is missing, and this segment follows it.
                        let place = BadPlace { is_synced: mark.covers(previous, left), is_followed: true };
                        if let Verdict::Torn { must_be_kept } = place.verdict() {
                            segments.retain(|number, _| *number <= previous);
                            let torn = TornTail { end: left, must_be_kept };
                            return Ok(Scanned { segments, torn: Some(torn) });
                        }
                        each(earlier.damaged(left..end, None))?;
                    }
                }
                Frame::Bad { end, header } => {
                    let is_followed = end < len || !is_last;
                    let place = BadPlace { is_synced: mark.covers(number, at), is_followed };
                    if let Verdict::Torn { must_be_kept } = place.verdict() {
                        segments.insert(number, segment);
                        return Ok(Scanned { segments, torn: Some(TornTail { end: at, must_be_kept }) });
                    }
                    each(segment.damaged(at..end, header))?;
                    at = end;
                }
            }
        }
        if let Some(synced) = mark.end_in(number).filter(|synced| len < *synced) {
            each(segment.damaged(len..synced, None))?;
        }
        segments.insert(number, segment);
    }
    Ok(Scanned { segments, torn: None })
}

impl Segment {
    /// Reports a damaged range. The segment's file is kept from now on.
    fn damaged(&self, range: Range<u64>, header: Option<Vec<u8>>) -> ScanEvent {
        self.preserve();
        ScanEvent::Damaged(Damage { segment: self.number, range, header })
    }
}

/// Reads the frame that begins at an offset.
fn read_frame(segment: &Segment, at: u64, len: u64) -> io::Result<Frame> {
    let heads = match try_read(segment, at..len.min(at + HEAD_V2_BYTES as u64))? {
        Some(bytes) => frame::parse_heads(&bytes, segment.number, at),
        None => Vec::new(),
    };
    for head in &heads {
        if let Some((header, body)) = read_whole(segment, at, len, head)? {
            return Ok(Frame::Whole { header, body });
        }
    }
    if let Some(head) = heads.first().filter(|head| head.is_position_valid) {
        let end = head.end(at).unwrap_or(u64::MAX).min(len);
        return Ok(Frame::Bad { end, header: read_header(segment, at, len, head)? });
    }
    // A damaged length may lead to a later frame.
    let next = next_positioned_head(segment, at + 1, len)?;
    let (mut end, mut header) = (next, None);
    for head in &heads {
        let claimed = head.end(at).unwrap_or(u64::MAX);
        if claimed == len || begins_frame(segment, claimed, len)? {
            (end, header) = (claimed.min(next), read_header(segment, at, len, head)?);
            break;
        }
    }
    Ok(Frame::Bad { end, header })
}

/// Returns the header of a frame and the range of its body, if its checksum holds.
fn read_whole(
    segment: &Segment,
    at: u64,
    len: u64,
    head: &Head,
) -> io::Result<Option<(Vec<u8>, Range<u64>)>> {
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
    Ok((crc.sum() == head.checksum).then_some((header, body_at..end)))
}

/// Reads the header of a damaged frame.
fn read_header(segment: &Segment, at: u64, len: u64, head: &Head) -> io::Result<Option<Vec<u8>>> {
    let header_at = at + head.head_bytes as u64;
    let body_at = header_at + head.header_bytes as u64;
    if body_at > len {
        return Ok(None);
    }
    try_read(segment, header_at..body_at)
}

/// Returns whether a frame certainly begins at an offset.
fn begins_frame(segment: &Segment, at: u64, len: u64) -> io::Result<bool> {
    if at >= len {
        return Ok(false);
    }
    let Some(bytes) = try_read(segment, at..len.min(at + HEAD_V2_BYTES as u64))? else { return Ok(false) };
    for head in frame::parse_heads(&bytes, segment.number, at) {
        if head.is_position_valid || read_whole(segment, at, len, &head)?.is_some() {
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
        let bytes = medium::read_leniently(start..end, |bytes, at| segment.read_into(bytes, at))?;
        let starts = bytes.windows(HEAD_V2_BYTES).enumerate();
        for (offset, head) in starts.filter(|(_, head)| head.starts_with(&frame::MAGIC_V2)) {
            let at = start + offset as u64;
            if frame::parse_heads(head, segment.number, at).first().is_some_and(|head| head.is_position_valid)
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
    medium::try_read(range, |bytes, at| segment.read_into(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::super::rot::rot;
    use super::super::tests::{append, open, open_with};
    use super::*;
    use crate::medium::SECTOR_BYTES;
    use std::fs;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Number of the record of the last process.
    const LAST: u8 = 200;

    /// Appends records with these bodies, syncs them, and begins another segment as the next process does.
    fn write(dir: &Path, bodies: &[Vec<u8>]) {
        let log = open(dir, |_| Ok(())).unwrap();
        for (number, body) in bodies.iter().enumerate() {
            append(&log, number as u8, body.clone());
        }
        log.sync().unwrap();
        drop(log);
        let log = open(dir, |_| Ok(())).unwrap();
        append(&log, LAST, Vec::new());
        log.sync().unwrap();
    }

    /// Opens the log. Returns the changes that are read and the damaged ranges.
    fn opened(dir: &Path) -> (Vec<u8>, Vec<Damage>) {
        opened_with(dir, ReadFaults::default())
    }

    fn opened_with(dir: &Path, faults: ReadFaults) -> (Vec<u8>, Vec<Damage>) {
        let (mut changes, mut damages) = (Vec::new(), Vec::new());
        let each = |event| {
            match event {
                ScanEvent::Entry(entry) => changes.push(entry.header[1]),
                ScanEvent::Damaged(damage) => damages.push(damage),
            }
            Ok(())
        };
        drop(open_with(dir, faults, each).unwrap());
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

    fn flip(path: &Path, at: usize, bit: u32) {
        let mut bytes = fs::read(path).unwrap();
        bytes[at] ^= 1 << bit;
        fs::write(path, bytes).unwrap();
    }

    /// One flipped byte in a synced segment cut off every later change: 97 of 100 that `sync` had acknowledged. And a flipped bit of a
    /// length that led to the beginning of a later frame hid the frames before it (world 73,172,698 of files).
    #[test]
    fn one_flipped_bit_loses_one_record_and_nothing_is_truncated() {
        // Frames of 64 bytes, so that a flipped bit leads to another one.
        let equal = vec![vec![7; 64 - HEAD_V2_BYTES - 2]; 5];
        let different = (0..3).map(|n| vec![n; 20 * usize::from(n)]).collect();
        for bodies in [equal, different] {
            let dir = tempfile::tempdir().unwrap();
            write(dir.path(), &bodies);
            let len = fs::metadata(path(dir.path(), 1)).unwrap().len();
            let all: Vec<u8> = (0..bodies.len() as u8).chain([LAST]).collect();
            for (at, bit) in (0..len as usize).flat_map(|at| [4, 6].map(|bit| (at, bit))) {
                let after = copy(dir.path());
                flip(&path(after.path(), 1), at, bit);
                let (changes, damages) = opened(after.path());
                let missing: Vec<_> = all.iter().filter(|change| !changes.contains(change)).collect();
                let what = format!("byte {at}, bit {bit}");
                assert!(
                    missing.len() <= 1 && damages.len() <= 1 && changes.is_sorted(),
                    "{what}: {missing:?}"
                );
                assert!(missing.len() <= damages.len(), "{what} lost a record without a damaged range");
                assert_eq!(fs::metadata(path(after.path(), 1)).unwrap().len(), len, "{what}");
                assert_eq!(opened(after.path()).0, changes, "the next process reads the same changes");
            }
        }
    }

    #[test]
    fn an_unreadable_sector_loses_the_records_in_it() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &(0..12).map(|n| vec![n; 3000]).collect::<Vec<_>>());
        let len = fs::metadata(path(dir.path(), 1)).unwrap().len();
        for start in (0..len).step_by(SECTOR_BYTES as usize) {
            let after = copy(dir.path());
            let sector = start..start + SECTOR_BYTES;
            let faults = ReadFaults::new(move |segment, range| {
                segment == 1 && range.start < sector.end && sector.start < range.end
            });
            let (changes, damages) = opened_with(after.path(), faults);
            // The next head behind the sector is found. Up to three records have bytes in the sector.
            assert!(changes.len() >= 13 - 3 && changes.last() == Some(&LAST), "{start}: {changes:?}");
            assert!(!damages.is_empty());
            assert_eq!(fs::metadata(path(after.path(), 1)).unwrap().len(), len);
        }
    }

    /// Regression: a read that failed once was taken for damage, and at the end of the log for a torn record. So changes were lost that
    /// the disk could read at the next attempt.
    #[test]
    fn s584_a_read_that_fails_once_loses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &(0..12).map(|n| vec![n; 3000]).collect::<Vec<_>>());
        let all: Vec<u8> = (0..12).chain([LAST]).collect();
        for failing in 0..60 {
            let after = copy(dir.path());
            let (reads, failed) = (AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
            let counted = failed.clone();
            let faults = ReadFaults::new(move |_, _| {
                let fails = reads.fetch_add(1, Ordering::Relaxed) == failing;
                counted.fetch_add(u64::from(fails), Ordering::Relaxed);
                fails
            });
            assert_eq!(opened_with(after.path(), faults), (all.clone(), Vec::new()), "read {failing}");
            assert!(
                failing > 36 || failed.load(Ordering::Relaxed) == 1,
                "there are more than {failing} reads"
            );
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
            flip(&path(after.path(), 1), at, 4);
            let changes = opened(after.path()).0;
            assert!(changes.len() >= 3 && changes.windows(2).all(|two| two[0] < two[1]), "{at}: {changes:?}");
        }
    }

    /// Returns a segment as versions without the checksum of the position wrote it.
    fn old_segment(bodies: &[&[u8]]) -> Vec<u8> {
        let mut segment = Vec::new();
        for (change, body) in bodies.iter().enumerate() {
            let mut frame = frame::encode(&[0, change as u8], &[body]);
            frame.drain(frame::HEAD_V1_BYTES..HEAD_V2_BYTES);
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
        let log = open(dir.path(), |_| Ok(())).unwrap();
        append(&log, 0, vec![1; 50]);
        log.sync().unwrap();
        let synced = append(&log, 1, vec![1; 50]).1.end;
        append(&log, 2, vec![1; 50]);
        drop(log);
        let torn = path(dir.path(), 1);
        let whole = fs::read(&torn).unwrap();
        flip(&torn, synced as usize - 5, 4);
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
            rot(after.path(), |_| false, pick).unwrap().unwrap();
            assert_eq!(opened(after.path()).0.len(), 9);
        }
    }
}
