//! A log in one file, which its owner rewrites when most of it is obsolete.
//!
//! Beside the file `NAME` lie `NAME.synced`, the mark of what is synced; `NAME.new`, a rewritten file that was not
//! finished; `NAME.damaged`, a file whose damage was found when it was opened; and `NAME.lost`, a copy from before a
//! torn tail was cut off. Nothing reads the last two again.
//!
//! Invariants: a damaged file is never truncated nor appended to, but kept under its
//! other name and rewritten; the mark never says more than what is synced, so it is lowered before the file is cut, and
//! forgotten before the file is replaced.

use crate::frame::{Found, FrameReader, FrameWriter, NextFrame, cut_torn_tail, encode_frame};
use crate::sync_mark::SyncMark;
use crate::{BadPlace, Verdict, hold, medium};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Extension of the file with the mark.
const MARK: &str = "synced";
/// Extension of the name under which a damaged file is kept.
const DAMAGED: &str = "damaged";
/// Smallest file that is worth rewriting, in bytes.
const REWRITTEN_BYTES_MIN: u64 = 1 << 20;

/// The name, the first bytes and the locking of a log's file.
#[derive(Debug, Clone, Copy)]
pub struct FileLogFormat {
    /// Name of the log in messages.
    pub name: &'static str,
    /// First bytes of the file.
    pub header: &'static [u8],
    /// Whether the file is locked while it is open. Otherwise its owner ensures that one process uses it.
    pub is_locked: bool,
}

/// A log in one file, open for appending.
#[derive(Debug)]
pub struct FileLog {
    path: PathBuf,
    format: FileLogFormat,
    writer: FrameWriter,
    mark: Mark,
    /// Number of bytes appended by this process.
    appended: u64,
    /// Number of these bytes that survive the loss of power.
    synced: u64,
    /// Length of the file after this process last rewrote it; 0 before.
    rewritten: u64,
    /// The file is damaged and must be rewritten before anything is appended.
    is_damaged: bool,
}

/// A log that was opened, and what it has.
#[derive(Debug)]
pub struct OpenedFileLog<T> {
    /// The log. If it has damage, its owner rewrites it before it appends.
    pub log: FileLog,
    /// The decoded records, in the order in which they were appended.
    pub records: Vec<T>,
    /// The damage that was found; `None` if the log is undamaged.
    pub damage: Option<FileDamage>,
}

/// Damage of a log in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDamage {
    /// Ranges whose records are lost.
    pub ranges: Vec<Range<u64>>,
    /// Path under which the damaged file is kept.
    pub kept: PathBuf,
}

/// The file that says up to which offset the log's file was synced.
#[derive(Debug)]
struct Mark {
    file: File,
    /// The offset in the file; 0 also if it is not known.
    end: u64,
}

/// The content of a log's file, read from its first record on.
pub(crate) struct Scanned<T> {
    pub(crate) records: Vec<T>,
    /// End of the last record, or of the last damaged range within the file.
    pub(crate) end: u64,
    pub(crate) damaged: Vec<Range<u64>>,
    /// `Some` if a torn tail begins at `end`: whether it must be kept in a copy.
    torn: Option<bool>,
}

impl FileLog {
    /// Opens a log, or creates it, and reads it to its end. `decode` decodes a record; if it returns `None`, the
    /// record is of a newer version, and the call fails. Fails with `WouldBlock` if another process has the locked
    /// file open.
    pub fn open<T>(
        path: &Path,
        format: FileLogFormat,
        decode: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<OpenedFileLog<T>> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        let file = File::options().create(true).truncate(false).read(true).write(true).open(path)?;
        if format.is_locked {
            hold(&file)?;
        }
        begin_file(&file, &format)?;
        let mark_path = path.with_extension(MARK);
        let scanned = scan(&file, &format, SyncMark::read(&mark_path), decode)?;
        let mark = Mark { file: SyncMark::open(&mark_path)?, end: 0 };
        let mut log = Self {
            path: path.to_owned(),
            format,
            writer: FrameWriter::new(file, scanned.end),
            mark,
            appended: 0,
            synced: 0,
            rewritten: 0,
            is_damaged: !scanned.damaged.is_empty(),
        };
        let damage = log.settle(scanned.damaged, scanned.torn)?;
        Ok(OpenedFileLog { log, records: scanned.records, damage })
    }

    /// Gives a damaged file a second name and returns the damage. Cuts the torn tail off an undamaged file, and syncs
    /// and marks it.
    fn settle(&mut self, damaged: Vec<Range<u64>>, torn: Option<bool>) -> io::Result<Option<FileDamage>> {
        if self.is_damaged {
            let kept = medium::unused_path(&self.path, DAMAGED);
            fs::hard_link(&self.path, &kept)?;
            return Ok(Some(FileDamage { ranges: damaged, kept }));
        }
        if let Some(must_be_kept) = torn {
            let (path, end, name) = (self.path.display(), self.writer.end(), self.format.name);
            tracing::warn!(%path, end, "the {name} has an incomplete or damaged frame that is not known to be synced, and ends there; anything of worth behind it is kept in a file named *.lost");
            cut_torn_tail(&self.path, end, must_be_kept)?;
        }
        // An earlier process may have ended without a sync.
        self.writer.file().sync_all()?;
        self.write_mark(self.writer.end());
        Ok(None)
    }

    /// Appends a record as one frame.
    ///
    /// Panics if the log has damage and was not rewritten, and if the record is empty.
    pub fn append(&mut self, record: &[u8]) -> io::Result<()> {
        assert!(!self.is_damaged, "a record behind damage would be lost with it");
        let begin = self.writer.end();
        self.writer.append(record)?;
        self.appended += self.writer.end() - begin;
        Ok(())
    }

    /// Removes what was appended behind `end` and never acknowledged. Panics if an earlier process appended some of it.
    pub fn truncate_to(&mut self, end: u64) -> io::Result<()> {
        let removed = self.writer.end().saturating_sub(end);
        assert!(removed <= self.appended, "only what this process appended was never acknowledged");
        if self.mark.end > end {
            self.write_mark(end);
        }
        self.writer.truncate_to(end)?;
        self.appended -= removed;
        self.synced = self.synced.min(self.appended);
        Ok(())
    }

    /// Replaces the file by one that has these records only. The new file is synced.
    pub fn rewrite<'r>(&mut self, records: impl IntoIterator<Item = &'r [u8]>) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let file = File::options().create(true).truncate(true).read(true).write(true).open(&new)?;
        if self.format.is_locked {
            hold(&file)?;
        }
        let mut bytes = self.format.header.to_vec();
        for record in records {
            bytes.extend(encode_frame(record)?);
        }
        file.write_all_at(&bytes, 0)?;
        file.sync_all()?;
        // The mark of the old file says nothing about the new one.
        self.forget_mark()?;
        fs::rename(&new, &self.path)?;
        if let Some(dir) = self.path.parent() {
            File::open(dir)?.sync_all()?;
        }
        let end = bytes.len() as u64;
        self.writer = FrameWriter::new(file, end);
        (self.synced, self.rewritten, self.is_damaged) = (self.appended, end, false);
        self.write_mark(end);
        Ok(())
    }

    /// Returns whether the file has become so long that rewriting it pays, if most of it is obsolete.
    pub fn is_worth_rewriting(&self) -> bool {
        self.writer.end() >= REWRITTEN_BYTES_MIN.max(2 * self.rewritten)
    }

    /// Returns the offset at which the next frame is appended.
    pub fn end(&self) -> u64 {
        self.writer.end()
    }

    /// Returns how many bytes of the file survive the loss of power, as far as this process knows.
    pub fn synced_bytes(&self) -> u64 {
        self.writer.end().saturating_sub(self.appended - self.synced)
    }

    /// Returns the number of bytes appended by this process.
    pub fn appended(&self) -> u64 {
        self.appended
    }

    /// Returns a handle to sync the file with; `None` if everything appended is synced.
    pub fn file_to_sync(&self) -> io::Result<Option<File>> {
        if self.synced < self.appended { self.writer.file().try_clone().map(Some) } else { Ok(None) }
    }

    /// Records that the first `appended` bytes that this process appended are synced.
    pub fn mark_synced(&mut self, appended: u64) {
        assert!(appended <= self.appended, "more would count as synced than was appended");
        self.synced = self.synced.max(appended);
        self.write_mark(self.synced_bytes());
    }

    /// Makes it unknown what is synced, also after a loss of power.
    fn forget_mark(&mut self) -> io::Result<()> {
        self.mark.file.set_len(0)?;
        self.mark.end = 0;
        self.mark.file.sync_data()
    }

    fn write_mark(&mut self, end: u64) {
        match SyncMark::at(0, end).write(&self.mark.file) {
            Ok(()) => self.mark.end = end,
            Err(error) => {
                let name = self.format.name;
                tracing::debug!(%error, "cannot record up to which position the {name} is synced; after a crash, damage behind the last recorded one may be taken for writes that were never synced");
            }
        }
    }
}

/// Writes the header into a file that is shorter than it. Fails with `InvalidData` if the file begins with other bytes.
fn begin_file(file: &File, format: &FileLogFormat) -> io::Result<()> {
    let header = format.header;
    if file.metadata()?.len() < header.len() as u64 {
        // The process that created the file ended before it had written the header.
        file.set_len(0)?;
        return file.write_all_at(header, 0);
    }
    let mut found = vec![0; header.len()];
    file.read_exact_at(&mut found, 0)?;
    if found == header { Ok(()) } else { Err(newer(format)) }
}

/// Returns the error for a header or a record that only a newer version can read.
fn newer(format: &FileLogFormat) -> io::Error {
    let text = format!("the {} was written by a newer version of Tenon", format.name);
    io::Error::new(ErrorKind::InvalidData, text)
}

/// Reads the records of a file up to a torn tail or its end. Changes nothing.
pub(crate) fn scan<T>(
    file: &File,
    format: &FileLogFormat,
    mark: SyncMark,
    decode: impl Fn(&[u8]) -> Option<T>,
) -> io::Result<Scanned<T>> {
    let mut reader = FrameReader::new(file.try_clone()?, format.header.len() as u64)?;
    let len = file.metadata()?.len();
    let (mut records, mut damaged) = (Vec::new(), Vec::new());
    let torn = loop {
        match reader.next()? {
            NextFrame::Frame(body) => records.push(decode(body).ok_or_else(|| newer(format))?),
            NextFrame::End => break None,
            NextFrame::Bad => {
                let at = reader.position();
                let found = reader.search(|body| decode(body).is_some())?;
                let place = BadPlace { is_synced: mark.covers(0, at), is_followed: found != Found::Nothing };
                match (place.verdict(), found) {
                    (Verdict::Torn { must_be_kept }, _) => break Some(must_be_kept),
                    (Verdict::Damaged, Found::Frame(next)) => {
                        damaged.push(at..next);
                        reader.continue_at(next);
                    }
                    (Verdict::Damaged, Found::Nothing | Found::Unknown) => {
                        damaged.push(at..len);
                        reader.continue_at(len);
                    }
                }
            }
        }
    };
    if let Some(synced) = mark.end_in(0).filter(|synced| *synced > len) {
        damaged.push(len..synced);
    }
    Ok(Scanned { records, end: reader.position(), damaged, torn })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::LOST;

    const FORMAT: FileLogFormat =
        FileLogFormat { name: "log of the tests", header: b"TEST0001", is_locked: true };

    fn open(path: &Path) -> OpenedFileLog<Vec<u8>> {
        FileLog::open(path, FORMAT, |record| Some(record.to_vec())).unwrap()
    }

    /// Appends five records, and syncs the first of them.
    fn written(path: &Path, synced: usize) -> Vec<Vec<u8>> {
        let records: Vec<Vec<u8>> = (1..=5).map(|n| vec![n; 10]).collect();
        let mut log = open(path).log;
        for (number, record) in records.iter().enumerate() {
            log.append(record).unwrap();
            if number + 1 == synced {
                log.file_to_sync().unwrap().unwrap().sync_data().unwrap();
                log.mark_synced(log.appended());
            }
        }
        records
    }

    fn with_flipped_byte(whole: &[u8], at: usize) -> Vec<u8> {
        let mut bytes = whole.to_vec();
        bytes[at] ^= 0x10;
        bytes
    }

    /// A damaged length in the last frame counted as an incomplete frame although a sync had covered it, and was cut
    /// off without a copy.
    #[test]
    fn damage_of_what_was_synced_loses_one_record_and_the_file_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let records = written(&path, 5);
        let whole = fs::read(&path).unwrap();
        let mark = fs::read(path.with_extension(MARK)).unwrap();
        let frame_bytes = (whole.len() - FORMAT.header.len()) / records.len();
        for at in FORMAT.header.len()..whole.len() {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("log");
            let bytes = with_flipped_byte(&whole, at);
            fs::write(&path, &bytes).unwrap();
            fs::write(path.with_extension(MARK), &mark).unwrap();
            let mut opened = open(&path);
            let mut left = records.clone();
            left.remove((at - FORMAT.header.len()) / frame_bytes);
            assert_eq!(opened.records, left, "byte {at}");
            let damage = opened.damage.unwrap();
            assert_eq!((damage.ranges.len(), fs::read(&damage.kept).unwrap()), (1, bytes), "byte {at}");
            opened.log.rewrite(left.iter().map(Vec::as_slice)).unwrap();
            opened.log.append(b"later").unwrap();
            drop(opened.log);
            left.push(b"later".to_vec());
            assert_eq!(open(&path).records, left);
        }
    }

    #[test]
    fn what_no_sync_covered_is_cut_at_the_first_bad_place_and_kept_if_records_follow() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let records = written(&path, 2);
        let whole = fs::read(&path).unwrap();
        let frame_bytes = (whole.len() - FORMAT.header.len()) / records.len();
        for hit in 2..5 {
            let dir = tempfile::tempdir().unwrap();
            let new = dir.path().join("log");
            fs::write(&new, with_flipped_byte(&whole, FORMAT.header.len() + hit * frame_bytes + 9)).unwrap();
            fs::copy(path.with_extension(MARK), new.with_extension(MARK)).unwrap();
            let opened = open(&new);
            assert_eq!((opened.records, opened.damage), (records[..hit].to_vec(), None));
            assert_eq!(new.with_extension(LOST).exists(), hit < 4);
        }
    }

    /// Without a mark, as older versions left their files, nothing is cut without a copy.
    #[test]
    fn a_file_without_a_mark_is_cut_only_if_nothing_follows_and_never_without_a_copy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let records = written(&path, 5);
        let whole = fs::read(&path).unwrap();
        for (at, is_damage) in [(whole.len() - 1, false), (whole.len() - 25, true)] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("log");
            let bytes = with_flipped_byte(&whole, at);
            fs::write(&path, &bytes).unwrap();
            let opened = open(&path);
            assert_eq!((opened.records.len(), opened.damage.is_some()), (records.len() - 1, is_damage));
            let kept = if is_damage { DAMAGED } else { LOST };
            assert_eq!(fs::read(path.with_extension(kept)).unwrap(), bytes);
        }
    }

    #[test]
    fn a_synced_end_that_is_gone_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let records = written(&path, 5);
        let len = fs::metadata(&path).unwrap().len();
        File::options().write(true).open(&path).unwrap().set_len(len - 18).unwrap();
        let opened = open(&path);
        assert_eq!((opened.records.len(), opened.damage.unwrap().ranges), (4, vec![len - 18..len]));
        assert_eq!(records.len(), 5);
    }

    /// The mark of a file says nothing about the file that replaces it.
    #[test]
    fn a_rewritten_file_has_a_mark_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let records = written(&path, 5);
        let mut log = open(&path).log;
        log.rewrite([records[4].as_slice()]).unwrap();
        log.append(&records[0]).unwrap();
        let end = log.end();
        drop(log);
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len() as u64, end);
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        let opened = open(&path);
        assert_eq!((opened.records, opened.damage), (vec![records[4].clone()], None));
    }

    #[test]
    fn a_file_with_another_header_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, b"TEST0002 and more").unwrap();
        let error = FileLog::open(&path, FORMAT, |_| Some(())).unwrap_err();
        assert_eq!(error.to_string(), "the log of the tests was written by a newer version of Tenon");
        fs::write(&path, b"TEST").unwrap();
        assert_eq!(open(&path).records, Vec::<Vec<u8>>::new());
    }
}
