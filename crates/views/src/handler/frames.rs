//! Files of checked frames: the log and the snapshots.
//!
//! Owns framing (docs/format.md, "The event handler's files"): a frame is whole or it ends its file. Refuses: to know what records say.

use crc_fast::{CrcAlgorithm, checksum};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What every file begins with; the last digit is the version of the format.
const MAGIC: &[u8; 8] = b"tnviews1";

const HEADER_BYTES: u64 = 16;
const FRAME_HEAD_BYTES: usize = 8;

/// What nobody writes, so that a broken length does not ask for all memory.
const FRAME_BYTES_MAX: usize = 1 << 30;

/// A file that frames are appended to.
#[derive(Debug)]
pub(super) struct Writer {
    file: File,
    pub(super) bytes: u64,
    frame: Vec<u8>,
}

/// A file's frames from the first on.
#[derive(Debug)]
pub(super) struct Frames {
    file: BufReader<File>,
    /// How much of the file is whole so far, in bytes.
    pub(super) good_bytes: u64,
    pub(super) epoch: u64,
    frame: Vec<u8>,
}

/// What comes next in a file.
#[derive(Debug)]
pub(super) enum Next<'a> {
    Frame(&'a [u8]),
    End,
    /// The rest is no frame.
    Broken,
}

impl Writer {
    /// A new file.
    pub(super) fn create(path: &Path, epoch: u64) -> io::Result<Self> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        file.write_all(&[&MAGIC[..], &epoch.to_le_bytes()].concat())?;
        Ok(Self { file, bytes: HEADER_BYTES, frame: Vec::new() })
    }

    /// Where the next frame's records are put before [`Writer::write`].
    pub(super) fn frame(&mut self) -> &mut Vec<u8> {
        if self.frame.is_empty() {
            self.frame.resize(FRAME_HEAD_BYTES, 0);
        }
        &mut self.frame
    }

    /// Appends the frame, if there is anything in it. After an error it is still to be written.
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

    /// Returns when the file survives the loss of power.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

impl Frames {
    /// Of a file; `None` if it is none of this format.
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
        Ok(Some(Self { file, good_bytes: HEADER_BYTES, epoch, frame: Vec::new() }))
    }

    pub(super) fn next(&mut self) -> io::Result<Next<'_>> {
        let mut head = [0; FRAME_HEAD_BYTES];
        let read = read_up_to(&mut self.file, &mut head)?;
        if read < FRAME_HEAD_BYTES {
            return Ok(if read == 0 { Next::End } else { Next::Broken });
        }
        let field = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (length, sum) = (field(0) as usize, field(4));
        if length == 0 || length > FRAME_BYTES_MAX {
            return Ok(Next::Broken);
        }
        self.frame.clear();
        let read = (&mut self.file).take(length as u64).read_to_end(&mut self.frame)?;
        if read < length || checksum(CrcAlgorithm::Crc32Iscsi, &self.frame) as u32 != sum {
            return Ok(Next::Broken);
        }
        self.good_bytes += (FRAME_HEAD_BYTES + length) as u64;
        Ok(Next::Frame(&self.frame))
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

/// A log or a snapshot by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Name {
    Snapshot(u64),
    Log(u64),
}

impl Name {
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

    fn of(file: &str) -> Option<Self> {
        let number = |digits: &str| u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 16);
        match file.split_once('-')? {
            ("snapshot", digits) => number(digits).map(Self::Snapshot),
            ("log", digits) => number(digits).map(Self::Log),
            _ => None,
        }
    }

    /// The files of a directory: snapshots, then logs, by number.
    pub(super) fn all(dir: &Path) -> io::Result<Vec<Self>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            names.extend(entry?.file_name().to_str().and_then(Self::of));
        }
        names.sort_unstable();
        Ok(names)
    }
}
