//! Files of frames: the format of the log and the snapshots.
//!
//! Owns the header of these files and their names (docs/format.md, "The event handler's files"). Refuses: to know what
//! records mean.

use std::fs::File;
use std::io::{self, Read as _};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// Magic number of every file; the last digit is the version of the format.
const MAGIC: &[u8; 8] = b"tnviews1";

const HEADER_BYTES: u64 = 16;

/// Capacity that the buffer of a frame keeps after the frame was written.
const KEPT_BYTES: usize = 256 << 10;

/// The versions of files that this Tenon reads.
pub const VERSIONS: RangeInclusive<u32> = 1..=1;

/// Returns the newest version of the files of an event handler in a directory, also if it is unknown; `None` if there are none.
pub fn stored_version(dir: &Path) -> io::Result<Option<u32>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    let mut newest = None;
    for entry in entries {
        let entry = entry?;
        let mut magic = [0; MAGIC.len()];
        if entry.file_type()?.is_file() && File::open(entry.path())?.read_exact(&mut magic).is_ok() {
            newest = newest.max(version_of(&magic));
        }
    }
    Ok(newest)
}

/// Returns the version in the magic number of a file; `None` if the file is not an event handler's.
fn version_of(magic: &[u8; 8]) -> Option<u32> {
    match magic.strip_prefix(&MAGIC[..7]) {
        Some([digit]) => char::from(*digit).to_digit(10),
        _ => None,
    }
}

/// Appends frames to a file.
#[derive(Debug)]
pub(super) struct FrameWriter {
    log: log::FrameWriter,
    frame: Vec<u8>,
}

/// Reads the frames of a file, from the first on; `epoch` is that in the file's header.
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
    /// Opens a file; `None` if it does not begin with a complete header of this format.
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

    /// Parses a file's name; `None` if it is not that of a log or a snapshot.
    fn parse(file: &str) -> Option<Self> {
        match file.split_once('-')? {
            ("snapshot", digits) => store::number_of_hex(digits).map(Self::Snapshot),
            ("log", digits) => store::number_of_hex(digits).map(Self::Log),
            _ => None,
        }
    }

    /// Returns the snapshots and logs in a directory: snapshots by number, then logs by number. Leaves out other files.
    pub(super) fn all(dir: &Path) -> io::Result<Vec<Self>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            names.extend(entry?.file_name().to_str().and_then(Self::parse));
        }
        names.sort_unstable();
        Ok(names)
    }
}
