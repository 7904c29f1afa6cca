//! The write-ahead log: publications that are in no table file yet, one frame each, in files named by number.
//!
//! A frame is the length of its record, the CRC-32C of the record and its place, and the record. The place (file and offset) is part of the
//! checksum, so that a frame of another log is not taken for this log's.
//!
//! Invariant: a frame survives a crash of the process once `append` has returned, and a loss of power once `sync` has. Reading ends at the
//! first place without a whole frame, as later records depend on what is lost there. The rule of all logs ([`BadPlace`]) tells with the
//! engine's mark of synced commits whether the place is torn, so that the log is cut there, or damaged, so that the log is left as it is.

use log::{BadPlace, Verdict, cut_torn_tail, read_leniently, unused_path};
use meta::EngineError;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Length of a frame without its record.
const HEAD_BYTES: usize = 8;
/// Bytes of records that a search for frames behind a bad place checks before it gives up. Each byte could be the start of a frame of any
/// length.
const SEARCH_BYTES_MAX: usize = 1 << 30;
/// Extension that whole files behind the place where a loss of power tore the log get.
const LOST: &str = "lost";

/// The log of a directory.
#[derive(Debug)]
pub(super) struct WriteAheadLog {
    dir: PathBuf,
    current: Mutex<Current>,
}

/// The file that is appended to.
#[derive(Debug)]
struct Current {
    number: u64,
    file: File,
    /// Length of the whole frames in the file.
    len_bytes: u64,
    /// Whether a failed append may have left a part of a frame behind the whole frames.
    has_torn_end: bool,
    /// Earlier files that are not synced yet.
    unsynced: Vec<File>,
}

impl WriteAheadLog {
    /// Begins the log file with this number.
    pub(super) fn begin(dir: &Path, number: u64) -> io::Result<Self> {
        let current = Current {
            number,
            file: create_durably(dir, number)?,
            len_bytes: 0,
            has_torn_end: false,
            unsynced: Vec::new(),
        };
        Ok(Self { dir: dir.to_owned(), current: Mutex::new(current) })
    }

    /// Appends a record. After an error the log has the same records as before.
    pub(super) fn append(&self, record: &[u8]) -> io::Result<()> {
        let mut current = self.lock();
        current.cut_torn_end()?;
        let frame = frame(current.number, current.len_bytes, record);
        if let Err(error) = current.file.write_all(&frame) {
            current.has_torn_end = current.file.set_len(current.len_bytes).is_err();
            return Err(error);
        }
        current.len_bytes += frame.len() as u64;
        Ok(())
    }

    /// Makes all records durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        let (file, unsynced) = {
            let mut current = self.lock();
            (current.file.try_clone()?, std::mem::take(&mut current.unsynced))
        };
        unsynced.iter().try_for_each(File::sync_data)?;
        file.sync_data()
    }

    /// Begins the next file durably and returns its number.
    pub(super) fn rotate(&self) -> io::Result<u64> {
        let number = self.rotate_unsynced()?;
        self.sync_directory()?;
        Ok(number)
    }

    /// Like [`rotate`](Self::rotate), for a caller that makes the names in the directory durable before the next append.
    pub(super) fn rotate_unsynced(&self) -> io::Result<u64> {
        let mut current = self.lock();
        // A replay ends at a torn end, and would not reach the records of the next file.
        current.cut_torn_end()?;
        let number = current.number + 1;
        let file = create(&self.dir, number)?;
        let old = std::mem::replace(&mut current.file, file);
        if current.len_bytes > 0 {
            current.unsynced.push(old);
        }
        (current.number, current.len_bytes) = (number, 0);
        Ok(number)
    }

    /// Makes the names of the files in the directory durable, such as that of a file that was just begun.
    pub(super) fn sync_directory(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Current {
    /// Removes what a failed append has left at the end.
    fn cut_torn_end(&mut self) -> io::Result<()> {
        if self.has_torn_end {
            self.file.set_len(self.len_bytes)?;
            self.has_torn_end = false;
        }
        Ok(())
    }
}

/// The outcome of a replay.
#[derive(Debug)]
pub(super) struct Replayed {
    /// The number of the next file.
    pub(super) next: u64,
    /// The place where the replay ended, if it is not the end of the log.
    pub(super) bad_end: Option<BadEnd>,
}

/// A place of the log without a whole frame, behind which nothing was replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadEnd {
    /// The number of the log file with the place.
    number: u64,
    /// The offset of the place in the file.
    at: u64,
    /// The number of the file that was begun after the replay.
    next: u64,
    /// Whether a whole frame or a further file that is not empty may follow.
    is_followed: bool,
}

/// Passes all whole records of the log files from `first` on to `apply`, up to the first place without a whole frame or the first file that
/// is missing. Sectors that the disk cannot read count as zeros.
pub(super) fn replay<E: From<io::Error>>(
    dir: &Path,
    first: u64,
    mut apply: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<Replayed, E> {
    let numbers = numbers_in(dir)?;
    let next = numbers.last().map_or(first, |last| first.max(last + 1));
    let end = |number, at: usize, is_followed| {
        let is_followed = is_followed || has_frames_from(dir, number + 1)?;
        Ok::<_, io::Error>(Some(BadEnd { number, at: at as u64, next, is_followed }))
    };
    for (number, expected) in numbers.range(first..).copied().zip(first..) {
        if number != expected {
            let bad_end = end(expected, 0, false)?.filter(|end| end.is_followed);
            return Ok(Replayed { next, bad_end });
        }
        let bytes = read_file(&path_of(dir, number))?;
        let mut at = 0;
        while let Some(record) = record_at(&bytes, number, at) {
            apply(record)?;
            at += HEAD_BYTES + record.len();
        }
        if at < bytes.len() {
            return Ok(Replayed { next, bad_end: end(number, at, has_frame_after(&bytes, number, at))? });
        }
    }
    Ok(Replayed { next, bad_end: None })
}

impl BadEnd {
    /// Cuts the log where it is torn. Fails where it is damaged, and changes nothing then. `is_synced` says whether a sync covered the
    /// place, if that is known.
    pub(super) fn settle(self, dir: &Path, is_synced: Option<bool>) -> Result<(), EngineError> {
        match (BadPlace { is_synced, is_followed: self.is_followed }).verdict() {
            Verdict::Damaged => Err(EngineError::Corrupt(format!(
                "the write-ahead log is damaged at byte {} of {}",
                self.at,
                path_of(dir, self.number).display()
            ))),
            Verdict::Torn { must_be_kept } => {
                self.cut(dir, must_be_kept).map_err(|error| EngineError::Unavailable(error.to_string()))
            }
        }
    }

    /// Cuts the log. Files behind the place go first, the last one before the others: a replay would continue with them behind the cut.
    fn cut(self, dir: &Path, must_be_kept: bool) -> io::Result<()> {
        for number in numbers_in(dir)?.range(self.number + 1..self.next).rev() {
            let path = path_of(dir, *number);
            fs::rename(&path, unused_path(&path, LOST))?;
        }
        File::open(dir)?.sync_all()?;
        let path = path_of(dir, self.number);
        if path.exists() { cut_torn_tail(&path, self.at, must_be_kept) } else { Ok(()) }
    }
}

/// Reads a log file, with zeros for the sectors that the disk cannot read.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    read_leniently(0..file.metadata()?.len(), |bytes, at| {
        #[cfg(test)]
        tests::fail_if_unreadable(at, bytes.len() as u64)?;
        file.read_exact_at(bytes, at)
    })
}

/// Returns whether a log file from a number on has any bytes, which may be frames.
fn has_frames_from(dir: &Path, number: u64) -> io::Result<bool> {
    for number in numbers_in(dir)?.range(number..) {
        if fs::metadata(path_of(dir, *number))?.len() > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether a whole frame follows a place. Returns true as well if the search is given up.
fn has_frame_after(bytes: &[u8], number: u64, at: usize) -> bool {
    let mut budget = SEARCH_BYTES_MAX;
    for at in at + 1..bytes.len().saturating_sub(HEAD_BYTES) {
        let Some(len) = record_len(bytes, at) else { continue };
        let Some(left) = budget.checked_sub(len) else { return true };
        budget = left;
        if len > 0 && record_at(bytes, number, at).is_some() {
            return true;
        }
    }
    false
}

/// Returns the length of the record of the frame at an offset; `None` if the bytes are too few for such a frame.
fn record_len(bytes: &[u8], at: usize) -> Option<usize> {
    let (len, rest) = bytes.get(at..)?.split_first_chunk::<4>()?;
    let len = u32::from_le_bytes(*len) as usize;
    (4 + len <= rest.len()).then_some(len)
}

/// Deletes the log files before a number.
pub(super) fn delete_before(dir: &Path, first: u64) -> io::Result<()> {
    numbers_in(dir)?.range(..first).try_for_each(|number| fs::remove_file(path_of(dir, *number)))
}

/// Returns the numbers of the log files in a directory.
fn numbers_in(dir: &Path) -> io::Result<BTreeSet<u64>> {
    let mut numbers = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "log") {
            numbers.extend(path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok()));
        }
    }
    Ok(numbers)
}

/// Returns the frame of a record at an offset of a log file.
fn frame(number: u64, at: u64, record: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD_BYTES + record.len());
    frame.extend((record.len() as u32).to_le_bytes());
    frame.extend(checksum(number, at, record).to_le_bytes());
    frame.extend(record);
    frame
}

/// Returns the record of the frame at an offset; `None` if no whole frame begins there.
fn record_at(bytes: &[u8], number: u64, at: usize) -> Option<&[u8]> {
    let (len, rest) = bytes.get(at..)?.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let record = rest.get(..u32::from_le_bytes(*len) as usize)?;
    (checksum(number, at as u64, record) == u32::from_le_bytes(*sum)).then_some(record)
}

/// Returns the checksum of a record and of its place: the number of the log file, and the offset.
fn checksum(number: u64, at: u64, record: &[u8]) -> u32 {
    let mut crc = log::Crc::default();
    [&number.to_le_bytes(), &at.to_le_bytes(), record].into_iter().for_each(|piece: &[u8]| crc.add(piece));
    crc.sum()
}

fn create(dir: &Path, number: u64) -> io::Result<File> {
    File::options().append(true).create_new(true).open(path_of(dir, number))
}

fn create_durably(dir: &Path, number: u64) -> io::Result<File> {
    let file = create(dir, number)?;
    File::open(dir)?.sync_all()?;
    Ok(file)
}

fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.log"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::ops::Range;

    thread_local! {
        static UNREADABLE: RefCell<Range<u64>> = const { RefCell::new(0..0) };
    }

    pub(super) fn fail_if_unreadable(at: u64, len: u64) -> io::Result<()> {
        let is_hit = UNREADABLE.with_borrow(|bad| at < bad.end && bad.start < at + len);
        if is_hit { Err(rustix::io::Errno::IO.into()) } else { Ok(()) }
    }

    fn replayed(dir: &Path) -> (Vec<Vec<u8>>, Replayed) {
        let mut records = Vec::new();
        let replayed = replay(dir, 1, |record| {
            records.push(record.to_vec());
            Ok::<_, io::Error>(())
        });
        (records, replayed.unwrap())
    }

    fn records(dir: &Path) -> (Vec<Vec<u8>>, u64) {
        let (records, replayed) = replayed(dir);
        (records, replayed.next)
    }

    /// Returns a directory with a log of two files with ten records of 1000 bytes each, and the records.
    fn two_files() -> (tempfile::TempDir, Vec<Vec<u8>>) {
        let folder = tempfile::tempdir().unwrap();
        let log = WriteAheadLog::begin(folder.path(), 1).unwrap();
        let all: Vec<Vec<u8>> = (0..20).map(|number| vec![number; 1000]).collect();
        all[..10].iter().for_each(|record| log.append(record).unwrap());
        log.rotate().unwrap();
        all[10..].iter().for_each(|record| log.append(record).unwrap());
        (folder, all)
    }

    fn lost_files(dir: &Path) -> usize {
        let entries = fs::read_dir(dir).unwrap();
        entries.filter(|entry| entry.as_ref().unwrap().path().extension() == Some("lost".as_ref())).count()
    }

    fn is_damaged(end: BadEnd, dir: &Path, is_synced: Option<bool>) -> bool {
        matches!(end.settle(dir, is_synced), Err(EngineError::Corrupt(_)))
    }

    #[test]
    fn a_torn_tail_is_cut() {
        let (folder, all) = two_files();
        let path = path_of(folder.path(), 2);
        File::options().write(true).open(&path).unwrap().set_len(9 * 1008 + 500).unwrap();
        let (found, Replayed { bad_end, .. }) = replayed(folder.path());
        assert_eq!(found, all[..19]);
        let end = bad_end.unwrap();
        assert_eq!((end.number, end.at, end.is_followed), (2, 9 * 1008, false));
        assert!(is_damaged(end, folder.path(), Some(true)), "a sync covered it");
        end.settle(folder.path(), Some(false)).unwrap();
        assert_eq!((fs::metadata(&path).unwrap().len(), lost_files(folder.path())), (9 * 1008, 0));
        let (found, Replayed { bad_end, .. }) = replayed(folder.path());
        assert_eq!((found.len(), bad_end), (19, None));
    }

    /// Frames behind the place were dropped without a copy, and a second replay could have continued behind the gap.
    #[test]
    fn rot_in_the_middle_is_damage_or_cut_after_a_copy() {
        for (number, at, whole) in [(1, 3 * 1008 + 20, 3), (2, 4 * 1008 + 1, 14), (2, 5, 10)] {
            let (folder, all) = two_files();
            let path = path_of(folder.path(), number);
            let mut bytes = fs::read(&path).unwrap();
            bytes[at] ^= 0x40;
            fs::write(&path, &bytes).unwrap();
            let (found, Replayed { bad_end, next }) = replayed(folder.path());
            assert_eq!((&found[..], next), (&all[..whole], 3));
            let end = bad_end.unwrap();
            assert!(end.is_followed);
            for is_synced in [Some(true), None] {
                assert!(is_damaged(end, folder.path(), is_synced));
                assert_eq!((fs::read(&path).unwrap() == bytes, lost_files(folder.path())), (true, 0));
            }
            end.settle(folder.path(), Some(false)).unwrap();
            assert_eq!(lost_files(folder.path()), if number == 1 { 2 } else { 1 });
            let (found, Replayed { bad_end, .. }) = replayed(folder.path());
            assert_eq!((&found[..], bad_end), (&all[..whole], None));
        }
    }

    /// A sector that cannot be read prevented every opening, also where nothing of worth was in it.
    #[test]
    fn an_unreadable_sector_is_a_bad_place() {
        let (folder, all) = two_files();
        for (sector, whole) in [(0, 0), (1, 4), (2, 8)] {
            UNREADABLE.set(sector * 4096..(sector + 1) * 4096);
            let (found, Replayed { bad_end, .. }) = replayed(folder.path());
            UNREADABLE.set(0..0);
            assert_eq!(found, all[..whole]);
            assert!(is_damaged(bad_end.unwrap(), folder.path(), Some(true)));
        }
        let (found, Replayed { bad_end, .. }) = replayed(folder.path());
        assert_eq!((found, bad_end), (all, None));
    }

    #[test]
    fn a_missing_file_is_a_bad_place_if_records_follow() {
        let (folder, _) = two_files();
        fs::remove_file(path_of(folder.path(), 1)).unwrap();
        let (found, Replayed { bad_end, .. }) = replayed(folder.path());
        assert!(found.is_empty() && is_damaged(bad_end.unwrap(), folder.path(), None));
        File::create(path_of(folder.path(), 2)).unwrap();
        assert_eq!(replayed(folder.path()).1.bad_end, None);
    }

    #[test]
    fn records_are_read_up_to_the_first_frame_that_is_not_whole() {
        let folder = tempfile::tempdir().unwrap();
        let log = WriteAheadLog::begin(folder.path(), 1).unwrap();
        log.append(b"one").unwrap();
        log.append(b"").unwrap();
        assert_eq!(log.rotate().unwrap(), 2);
        log.append(b"three").unwrap();
        log.sync().unwrap();
        let all = vec![b"one".to_vec(), Vec::new(), b"three".to_vec()];
        assert_eq!(records(folder.path()), (all.clone(), 3));
        for (number, last_whole) in [(2, 2), (1, 0)] {
            let path = path_of(folder.path(), number);
            let bytes = fs::read(&path).unwrap();
            let mut damaged = bytes.clone();
            damaged[HEAD_BYTES] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert_eq!(records(folder.path()), (all[..last_whole].to_vec(), 3));
            fs::write(&path, bytes).unwrap();
        }
        delete_before(folder.path(), 2).unwrap();
        assert!(!path_of(folder.path(), 1).exists());
        assert!(path_of(folder.path(), 2).exists());
    }

    /// An append had failed and could not be undone, and the next file was begun behind it: a replay ended at the torn frame, before the
    /// records of that file.
    #[test]
    fn no_file_is_begun_behind_a_torn_frame() {
        let folder = tempfile::tempdir().unwrap();
        let log = WriteAheadLog::begin(folder.path(), 1).unwrap();
        log.append(b"one").unwrap();
        {
            let mut current = log.lock();
            current.file.write_all(b"torn").unwrap();
            current.has_torn_end = true;
        }
        log.rotate().unwrap();
        log.append(b"two").unwrap();
        assert_eq!(records(folder.path()).0, [b"one".to_vec(), b"two".to_vec()]);
    }
}
