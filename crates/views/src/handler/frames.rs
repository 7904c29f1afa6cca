//! Files of checksummed frames: the format of the log and the snapshots.
//!
//! Owns the framing (docs/format.md, "The event handler's files"): the first frame that is incomplete or damaged ends
//! its file. Refuses: to know what records mean.

use crc_fast::{CrcAlgorithm, checksum};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Magic number of every file; the last digit is the version of the format.
const MAGIC: &[u8; 8] = b"tnviews1";

const HEADER_BYTES: u64 = 16;
const FRAME_HEAD_BYTES: usize = 8;

/// Maximum frame length. A damaged length field must not cause a huge allocation.
const FRAME_BYTES_MAX: usize = 1 << 30;

/// Appends frames to a file.
#[derive(Debug)]
pub(super) struct FrameWriter {
    file: File,
    pub(super) bytes: u64,
    frame: Vec<u8>,
}

/// Reads the frames of a file, from the first on.
#[derive(Debug)]
pub(super) struct FrameReader {
    file: BufReader<File>,
    /// Length of the part of the file that was read and is whole, in bytes.
    pub(super) whole_bytes: u64,
    pub(super) epoch: u64,
    frame: Vec<u8>,
}

/// Result of reading the next frame.
#[derive(Debug)]
pub(super) enum NextFrame<'a> {
    Frame(&'a [u8]),
    End,
    /// The rest of the file is not a whole frame.
    Broken,
}

impl FrameWriter {
    /// Creates a file, or truncates an existing one.
    pub(super) fn create(path: &Path, epoch: u64) -> io::Result<Self> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        file.write_all(&[&MAGIC[..], &epoch.to_le_bytes()].concat())?;
        Ok(Self { file, bytes: HEADER_BYTES, frame: Vec::new() })
    }

    /// Returns the buffer for the records of the next frame, which [`FrameWriter::write`] writes.
    pub(super) fn frame(&mut self) -> &mut Vec<u8> {
        if self.frame.is_empty() {
            self.frame.resize(FRAME_HEAD_BYTES, 0);
        }
        &mut self.frame
    }

    /// Appends the frame to the file, unless it is empty. After an error the frame stays in the buffer.
    pub(super) fn write(&mut self) -> io::Result<()> {
        let Some(body) = self.frame.get(FRAME_HEAD_BYTES..).filter(|body| !body.is_empty()) else {
            return Ok(());
        };
        let (length, sum) = (body.len() as u32, checksum(CrcAlgorithm::Crc32Iscsi, body) as u32);
        self.frame[..4].copy_from_slice(&length.to_le_bytes());
        self.frame[4..FRAME_HEAD_BYTES].copy_from_slice(&sum.to_le_bytes());
        self.file.write_all_at(&self.frame, self.bytes)?;
        self.bytes += self.frame.len() as u64;
        self.frame.clear();
        Ok(())
    }

    /// Flushes the file to disk, so that it survives the loss of power.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

impl FrameReader {
    /// Opens a file; `None` if it does not have this format.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
        let mut header = [0; HEADER_BYTES as usize];
        match file.read_exact(&mut header) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let (magic, epoch) = header.split_at(MAGIC.len());
        if magic != MAGIC {
            return Ok(None);
        }
        let epoch = epoch.try_into().map(u64::from_le_bytes).unwrap_or_default();
        Ok(Some(Self { file, whole_bytes: HEADER_BYTES, epoch, frame: Vec::new() }))
    }

    pub(super) fn next(&mut self) -> io::Result<NextFrame<'_>> {
        let mut head = [0; FRAME_HEAD_BYTES];
        let read = read_up_to(&mut self.file, &mut head)?;
        if read < FRAME_HEAD_BYTES {
            return Ok(if read == 0 { NextFrame::End } else { NextFrame::Broken });
        }
        let field = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (length, sum) = (field(0) as usize, field(4));
        if length == 0 || length > FRAME_BYTES_MAX {
            return Ok(NextFrame::Broken);
        }
        self.frame.clear();
        let read = (&mut self.file).take(length as u64).read_to_end(&mut self.frame)?;
        if read < length || checksum(CrcAlgorithm::Crc32Iscsi, &self.frame) as u32 != sum {
            return Ok(NextFrame::Broken);
        }
        self.whole_bytes += (FRAME_HEAD_BYTES + length) as u64;
        Ok(NextFrame::Frame(&self.frame))
    }
}

fn read_up_to(file: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < into.len() {
        match file.read(&mut into[read..])? {
            0 => break,
            bytes => read += bytes,
        }
    }
    Ok(read)
}

/// Name of a log or a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileName {
    Snapshot(u64),
    Log(u64),
}

impl FileName {
    pub(super) fn path(self, dir: &Path) -> PathBuf {
        match self {
            Self::Snapshot(number) => dir.join(format!("snapshot-{number:016x}")),
            Self::Log(number) => dir.join(format!("log-{number:016x}")),
        }
    }

    pub(super) fn number(self) -> u64 {
        match self {
            Self::Snapshot(number) | Self::Log(number) => number,
        }
    }

    fn parse(file: &str) -> Option<Self> {
        let number = |digits: &str| u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 16);
        match file.split_once('-')? {
            ("snapshot", digits) => number(digits).map(Self::Snapshot),
            ("log", digits) => number(digits).map(Self::Log),
            _ => None,
        }
    }

    /// Returns the files of a directory: snapshots by number, then logs by number.
    pub(super) fn all(dir: &Path) -> io::Result<Vec<Self>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            names.extend(entry?.file_name().to_str().and_then(Self::parse));
        }
        names.sort_unstable();
        Ok(names)
    }
}
