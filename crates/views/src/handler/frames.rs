//! Files of frames: the format of the log and the snapshots.
//!
//! Owns the header of these files and their names (docs/format.md, "The event handler's files"). Refuses: to know what
//! records mean.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Magic number of every file; the last digit is the version of the format.
const MAGIC: &[u8; 8] = b"tnviews1";

const HEADER_BYTES: u64 = 16;

/// Capacity that the buffer of a frame keeps after the frame was written.
const KEPT_BYTES: usize = 256 << 10;

/// Appends frames to a file.
#[derive(Debug)]
pub(super) struct FrameWriter {
    log: log::FrameWriter,
    frame: Vec<u8>,
}

/// Reads the frames of a file, from the first on.
#[derive(Debug)]
pub(super) struct FrameReader {
    pub(super) frames: log::FrameReader,
    pub(super) epoch: u64,
}

impl FrameWriter {
    /// Creates a file, or truncates an existing one.
    pub(super) fn create(path: &Path, epoch: u64) -> io::Result<Self> {
        let header = [&MAGIC[..], &epoch.to_le_bytes()].concat();
        Ok(Self { log: log::FrameWriter::create(path, &header)?, frame: Vec::new() })
    }

    /// Returns the length of the file in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.log.end()
    }

    /// Returns the buffer for the records of the next frame, which [`FrameWriter::write`] writes.
    pub(super) fn frame(&mut self) -> &mut Vec<u8> {
        &mut self.frame
    }

    /// Appends the frame to the file, unless it is empty. After an error the frame stays in the buffer.
    pub(super) fn write(&mut self) -> io::Result<()> {
        if !self.frame.is_empty() {
            self.log.append(&self.frame)?;
            self.frame.clear();
            self.frame.shrink_to(KEPT_BYTES);
        }
        Ok(())
    }

    /// Flushes the file to disk, so that it survives the loss of power.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.log.sync()
    }
}

impl FrameReader {
    /// Opens a file; `None` if it does not have this format.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        let mut file = File::open(path)?;
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
        Ok(Some(Self { frames: log::FrameReader::new(file, HEADER_BYTES)?, epoch }))
    }
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
