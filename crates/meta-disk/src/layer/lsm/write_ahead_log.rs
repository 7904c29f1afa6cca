//! The write-ahead log: publications that are in no table file yet, one frame each, in files named by number.
//!
//! A frame is the length of its record, the CRC-32C of the record and its place, and the record. The place (file and offset) is part of the
//! checksum, so that a frame of another log is not taken for this log's.
//!
//! Invariant: a frame survives a crash of the process once `append` has returned, and a loss of power once `sync` has. Reading ends at the
//! first frame that is not whole. The engine's mark of synced commits tells whether that frame was torn or damaged later.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

const HEAD_BYTES: usize = 8;

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
    len_bytes: u64,
    /// Whether a failed append may have left a part of a frame at the end.
    has_torn_end: bool,
    /// Older files that are not synced yet.
    unsynced: Vec<File>,
}

impl WriteAheadLog {
    /// Begins the log file with this number.
    pub(super) fn begin(dir: &Path, number: u64) -> io::Result<Self> {
        let current = Current {
            number,
            file: create(dir, number)?,
            len_bytes: 0,
            has_torn_end: false,
            unsynced: Vec::new(),
        };
        Ok(Self { dir: dir.to_owned(), current: Mutex::new(current) })
    }

    /// Appends a record. After an error the log is as it was before.
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

    /// Begins the next file and returns its number.
    pub(super) fn rotate(&self) -> io::Result<u64> {
        let mut current = self.lock();
        // A replay would end there, before the records of the next file.
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

/// Passes all whole records of the log files from `first` on to `apply`, up to the first frame that is not whole or the first file that is
/// missing: later records depend on what is lost. Returns the number of the next file.
pub(super) fn replay<E: From<io::Error>>(
    dir: &Path,
    first: u64,
    mut apply: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<u64, E> {
    let numbers = numbers_in(dir)?;
    let next = numbers.last().map_or(first, |last| first.max(last + 1));
    for (number, expected) in numbers.range(first..).zip(first..) {
        if *number != expected {
            break;
        }
        let bytes = fs::read(path_of(dir, *number))?;
        let mut at = 0;
        while let Some(record) = record_at(&bytes, *number, at) {
            apply(record)?;
            at += HEAD_BYTES + record.len();
        }
        if at < bytes.len() {
            break;
        }
    }
    Ok(next)
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

fn frame(number: u64, at: u64, record: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD_BYTES + record.len());
    frame.extend((record.len() as u32).to_le_bytes());
    frame.extend(checksum(number, at, record).to_le_bytes());
    frame.extend(record);
    frame
}

/// Returns the record of the frame at an offset, if the frame is whole.
fn record_at(bytes: &[u8], number: u64, at: usize) -> Option<&[u8]> {
    let (len, rest) = bytes.get(at..)?.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let record = rest.get(..u32::from_le_bytes(*len) as usize)?;
    (checksum(number, at as u64, record) == u32::from_le_bytes(*sum)).then_some(record)
}

fn checksum(number: u64, at: u64, record: &[u8]) -> u32 {
    let mut crc = log::Crc::default();
    [&number.to_le_bytes(), &at.to_le_bytes(), record].into_iter().for_each(|piece: &[u8]| crc.add(piece));
    crc.sum()
}

fn create(dir: &Path, number: u64) -> io::Result<File> {
    let file = File::options().append(true).create_new(true).open(path_of(dir, number))?;
    File::open(dir)?.sync_all()?;
    Ok(file)
}

fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.log"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(dir: &Path) -> (Vec<Vec<u8>>, u64) {
        let mut records = Vec::new();
        let next = replay(dir, 1, |record| {
            records.push(record.to_vec());
            Ok::<_, io::Error>(())
        });
        (records, next.unwrap())
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
