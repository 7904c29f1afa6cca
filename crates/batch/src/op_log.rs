//! The log of a batch: its ops in order, in pages.
//!
//! The file begins with the magic bytes. Its first frame is the header (format version, lease), and each further frame is a page of ops
//! ([`meta::codec::append_to_log_page`]).
//!
//! A frame of one zero byte is a mark: all before it was synced, and so was the content to which its ops refer.
//!
//! A killed process loses the page that is not complete. A loss of power also loses what was not synced; ops after the last mark must then not
//! be trusted, because their content may be gone. A reader sees whole pages.

use crate::table_error::io_error;
use log::{Found, FrameReader, FrameWriter, NextFrame, cut_torn_tail};
use meta::codec::{DecodeError, append_to_log_page, decode_log_page};
use meta::{EngineError, Ino, OpRecord};
use std::fs::File;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"TENONBAT";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 20;

/// The versions of logs that this Tenon reads.
pub const VERSIONS: RangeInclusive<u32> = VERSION..=VERSION;

/// Returns the path of the log in the directory of a batch, sealed or not.
pub fn log_path(dir: &Path) -> PathBuf {
    dir.join("ops")
}

/// Returns the version of the log in the directory of a batch, also if it is unknown; `None` if there is no log, or no header in it yet.
///
/// # Errors
/// `InvalidData`: the file is not the log of a batch.
pub fn stored_version(dir: &Path) -> io::Result<Option<u32>> {
    // Magic, length and checksum of the first frame, and the version in its body.
    let mut head = [0; 20];
    match File::open(log_path(dir)).and_then(|file| file.read_exact_at(&mut head, 0)) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => {
            Ok(None)
        }
        Err(error) => Err(error),
        Ok(()) if !head.starts_with(MAGIC) => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "the file is not the log of a batch"))
        }
        Ok(()) => Ok(head.last_chunk().map(|version| u32::from_le_bytes(*version))),
    }
}

/// The body of a mark.
const MARK: &[u8] = &[0];

/// Length at which a page of ops is written, in bytes.
const PAGE_BYTES: usize = 32 << 10;

/// Maximum length of a page, in bytes. A commit is one page, and the content of a file can have a hundred thousand extents.
const PAGE_BYTES_MAX: usize = 64 << 20;

/// A log that is being written.
#[derive(Debug)]
pub(crate) struct OpLog {
    writer: FrameWriter,
    /// The ops of the page that is not written yet.
    page: Vec<u8>,
    /// Whether pages were written, or may have been before this process, since the last mark.
    has_unmarked: bool,
}

impl OpLog {
    /// Creates the log of a batch with leased inode numbers. Fails if the file exists.
    pub(crate) fn create(path: &Path, lease: &Range<Ino>) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.write_all_at(MAGIC, 0)?;
        let mut writer = FrameWriter::new(file, MAGIC.len() as u64);
        writer.append(&encode_header(lease))?;
        Ok(Self { writer, page: Vec::new(), has_unmarked: false })
    }

    /// Continues a log behind its last whole page.
    pub(crate) fn continue_at(path: &Path, end: u64) -> io::Result<Self> {
        cut_torn_tail(path, end, false)?;
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Self { writer: FrameWriter::new(file, end), page: Vec::new(), has_unmarked: true })
    }

    /// Appends an op. It survives the end of the process once its page is written.
    pub(crate) fn append(&mut self, record: &OpRecord) -> Result<(), EngineError> {
        let len = self.page.len();
        append_to_log_page(&mut self.page, record);
        if self.page.len() < PAGE_BYTES {
            return Ok(());
        }
        // The op whose page could not be written has failed, and must not be written with the next one.
        self.flush().inspect_err(|_| self.page.truncate(len))
    }

    /// Writes ops as a page of their own, which survives the end of the process as a whole or not at all.
    pub(crate) fn append_commit(&mut self, records: &[OpRecord]) -> Result<(), EngineError> {
        self.flush()?;
        for record in records {
            append_to_log_page(&mut self.page, record);
        }
        // Ops that failed must not be written with the next ones.
        self.flush().inspect_err(|_| self.page.clear())
    }

    /// Writes the ops that are in no written page yet as a page. Fails with `Full` if it would be too long.
    pub(crate) fn flush(&mut self) -> Result<(), EngineError> {
        if self.page.len() > PAGE_BYTES_MAX {
            return Err(EngineError::Full("the ops of one commit are longer than 64 MiB".to_owned()));
        }
        if !self.page.is_empty() {
            self.writer.append(&self.page).map_err(|error| io_error(&error))?;
            self.page.clear();
            self.has_unmarked = true;
        }
        Ok(())
    }

    /// Makes all ops durable. Their content must be durable already.
    pub(crate) fn sync(&mut self) -> Result<(), EngineError> {
        self.flush()?;
        if self.has_unmarked {
            self.writer.append(MARK).map_err(|error| io_error(&error))?;
            self.has_unmarked = false;
        }
        self.writer.sync().map_err(|error| io_error(&error))
    }
}

/// An error of reading a log.
#[derive(Debug, thiserror::Error)]
pub enum LogDamage {
    /// The file could not be read.
    #[error("the log of the batch cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The file is not a log of this format, or too short to be one.
    #[error("the file is not the log of a batch, or a newer Tenon wrote it")]
    Header,
    /// The page at this offset in the file is not whole, damaged, or too long.
    #[error("the log of the batch is damaged at byte {0}")]
    Page(u64),
    /// A page has bytes that are not an op.
    #[error("the log of the batch has an invalid op: {0}")]
    Op(#[from] DecodeError),
}

/// A reader of the pages of a log.
pub(crate) struct OpLogReader {
    frames: FrameReader,
    lease: Range<Ino>,
}

impl OpLogReader {
    pub(crate) fn open(path: &Path) -> Result<Self, LogDamage> {
        let mut frames = FrameReader::open(path, MAGIC)?.ok_or(LogDamage::Header)?;
        let NextFrame::Frame(header) = frames.next()? else { return Err(LogDamage::Header) };
        let lease = decode_header(header).ok_or(LogDamage::Header)?;
        Ok(Self { frames, lease })
    }

    /// Returns the lease in the header.
    pub(crate) fn lease(&self) -> Range<Ino> {
        self.lease.clone()
    }

    /// Returns the offset in the file at which the last frame that was read ends.
    pub(crate) fn end(&self) -> u64 {
        self.frames.position()
    }

    /// Returns the offset at which the last mark ends; `None` if there is no mark. Moves the reader to the end of the log, or to the first
    /// frame that is not whole.
    pub(crate) fn find_last_mark(&mut self) -> Result<Option<u64>, LogDamage> {
        let mut last = None;
        while let NextFrame::Frame(body) = self.frames.next()? {
            if body == MARK {
                last = Some(self.frames.position());
            }
        }
        Ok(last)
    }

    /// Returns whether no frame is behind the bad place at the reader's position: the log ends there, because its last frame was being written
    /// when the process ended.
    pub(crate) fn is_at_torn_end(&mut self) -> Result<bool, LogDamage> {
        Ok(self.frames.search(|_| true)? == Found::Nothing)
    }

    /// Returns the ops of the next page, none for a mark; `None` at the end.
    pub(crate) fn next_page(&mut self) -> Result<Option<Vec<OpRecord>>, LogDamage> {
        let at = self.frames.position();
        match self.frames.next()? {
            NextFrame::Frame(MARK) => Ok(Some(Vec::new())),
            NextFrame::Frame(page) if page.len() <= PAGE_BYTES_MAX => Ok(Some(decode_log_page(page)?)),
            NextFrame::Frame(_) | NextFrame::Bad => Err(LogDamage::Page(at)),
            NextFrame::End => Ok(None),
        }
    }
}

fn encode_header(lease: &Range<Ino>) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&VERSION.to_le_bytes());
    header[4..12].copy_from_slice(&lease.start.0.to_le_bytes());
    header[12..].copy_from_slice(&lease.end.0.to_le_bytes());
    header
}

/// Returns the lease in a header; `None` if the header has another length or version.
fn decode_header(header: &[u8]) -> Option<Range<Ino>> {
    let header: &[u8; HEADER_BYTES] = header.try_into().ok()?;
    let (version, rest) = header.split_first_chunk()?;
    let (from, to) = rest.split_first_chunk()?;
    let lease = Ino(u64::from_le_bytes(*from))..Ino(u64::from_le_bytes(*to.first_chunk()?));
    (u32::from_le_bytes(*version) == VERSION).then_some(lease)
}

#[cfg(test)]
mod tests {
    use super::*;
    use meta::{Effect, Moment, Op, OpContext, Origin, XattrHow};
    use store::Timestamp;

    fn record(number: u64) -> OpRecord {
        let at = Moment { mount: 1, nanos: number };
        let context = OpContext { now: Timestamp(1), at, uid: 0, gid: 0, origin: Origin::FrontEnd };
        let value = vec![number as u8; 64 << 10].into();
        let op = Op::SetXattr { ino: Ino(number), name: (*b"user.large").into(), value, how: XattrHow::Set };
        OpRecord { context, op, effect: Effect::default() }
    }

    fn write(path: &Path, commits: &[Vec<OpRecord>]) {
        let mut log = OpLog::create(path, &(Ino(1)..Ino(9))).unwrap();
        commits.iter().for_each(|commit| log.append_commit(commit).unwrap());
    }

    fn pages(path: &Path) -> (usize, OpLogReader, Option<LogDamage>) {
        let (mut reader, mut count) = (OpLogReader::open(path).unwrap(), 0);
        loop {
            match reader.next_page() {
                Ok(Some(page)) => count += page.len(),
                Ok(None) => return (count, reader, None),
                Err(damage) => return (count, reader, Some(damage)),
            }
        }
    }

    /// A regression test: a reader refused pages of more than 1 MiB, which a commit could have, so that the log ended before it.
    #[test]
    fn a_long_commit_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ops");
        write(&path, &[(1..41).map(record).collect(), vec![record(41)]]);
        let (count, _, damage) = pages(&path);
        assert!(count == 41 && damage.is_none(), "{count}, {damage:?}");
    }

    /// A regression test: damage in the middle of the log was mistaken for its end, and the pages after it were cut off.
    #[test]
    fn damage_before_other_pages_is_no_torn_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ops");
        write(&path, &[vec![record(1)], vec![record(2)], vec![record(3)]]);
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, is_torn) in [(bytes.len() / 2, false), (bytes.len() - 9, true)] {
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            let (_, mut reader, damage) = pages(&path);
            assert!(matches!(damage, Some(LogDamage::Page(bad)) if bad == reader.end()), "{damage:?}");
            assert_eq!(reader.is_at_torn_end().unwrap(), is_torn);
            bytes[at] ^= 1;
        }
    }
}
