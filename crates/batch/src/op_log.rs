//! The log of a batch: its ops in order, in pages.
//!
//! The file begins with the magic bytes. Its first frame is the header (format version, lease), and each further frame is a page of ops
//! ([`meta::codec::append_to_log_page`]).
//!
//! A killed process loses the page that is not complete; a loss of power also loses what was not synced. A reader sees whole pages.

use crate::table_error::io_error;
use log::{FrameReader, FrameWriter, NextFrame, cut_torn_tail};
use meta::codec::{DecodeError, append_to_log_page, decode_log_page};
use meta::{EngineError, Ino, OpRecord};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: &[u8; 8] = b"TENONBAT";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 20;

/// Length at which a page is written.
const PAGE_BYTES: usize = 32 << 10;

/// Maximum length of a page that a reader accepts. An op may have an extended attribute of 64 KiB.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// A log that is being written.
#[derive(Debug)]
pub(crate) struct OpLog {
    writer: FrameWriter,
    page: Vec<u8>,
}

impl OpLog {
    /// Creates the log of a batch with leased inode numbers. Fails if the file exists.
    pub(crate) fn create(path: &Path, lease: &Range<Ino>) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.write_all_at(MAGIC, 0)?;
        let mut writer = FrameWriter::new(file, MAGIC.len() as u64);
        writer.append(&encode_header(lease))?;
        Ok(Self { writer, page: Vec::new() })
    }

    /// Continues a log behind its last whole page.
    pub(crate) fn continue_at(path: &Path, end: u64) -> io::Result<Self> {
        cut_torn_tail(path, end, false)?;
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Self { writer: FrameWriter::new(file, end), page: Vec::new() })
    }

    /// Appends an op. It survives the end of the process once its page is written.
    pub(crate) fn append(&mut self, record: &OpRecord) -> Result<(), EngineError> {
        let len = self.page.len();
        append_to_log_page(&mut self.page, record);
        if self.page.len() < PAGE_BYTES {
            return Ok(());
        }
        // An op that failed must not be written with the next one.
        self.flush().inspect_err(|_| self.page.truncate(len))
    }

    /// Writes the page that is not complete.
    pub(crate) fn flush(&mut self) -> Result<(), EngineError> {
        if !self.page.is_empty() {
            self.writer.append(&self.page).map_err(|error| io_error(&error))?;
            self.page.clear();
        }
        Ok(())
    }

    /// Makes all ops durable.
    pub(crate) fn sync(&mut self) -> Result<(), EngineError> {
        self.flush()?;
        self.writer.sync().map_err(|error| io_error(&error))
    }
}

/// An error of reading a log.
#[derive(Debug, thiserror::Error)]
pub enum LogDamage {
    /// The file could not be read.
    #[error("the log of the batch cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The file is not a log of this format.
    #[error("the file is not the log of a batch, or a newer Tenon wrote it")]
    Header,
    /// A page is not whole.
    #[error("the log of the batch is damaged at byte {0}")]
    Page(u64),
    /// A page does not contain ops.
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
        let file = File::open(path)?;
        let mut magic = [0; MAGIC.len()];
        file.read_exact_at(&mut magic, 0).map_err(|_| LogDamage::Header)?;
        if &magic != MAGIC {
            return Err(LogDamage::Header);
        }
        let mut frames = FrameReader::new(file, MAGIC.len() as u64)?;
        let NextFrame::Frame(header) = frames.next()? else { return Err(LogDamage::Header) };
        let lease = decode_header(header).ok_or(LogDamage::Header)?;
        Ok(Self { frames, lease })
    }

    /// Returns the lease in the header.
    pub(crate) fn lease(&self) -> Range<Ino> {
        self.lease.clone()
    }

    /// Returns the end of the last page that was read.
    pub(crate) fn end(&self) -> u64 {
        self.frames.position()
    }

    /// Returns the ops of the next page; `None` at the end.
    pub(crate) fn next_page(&mut self) -> Result<Option<Vec<OpRecord>>, LogDamage> {
        let at = self.frames.position();
        match self.frames.next()? {
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

fn decode_header(header: &[u8]) -> Option<Range<Ino>> {
    let header: &[u8; HEADER_BYTES] = header.try_into().ok()?;
    let (version, rest) = header.split_first_chunk()?;
    let (from, to) = rest.split_first_chunk()?;
    let lease = Ino(u64::from_le_bytes(*from))..Ino(u64::from_le_bytes(*to.first_chunk()?));
    (u32::from_le_bytes(*version) == VERSION).then_some(lease)
}
