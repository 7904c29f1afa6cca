//! One file of a segmented log.

use super::direct_io::{self, DIRECT_BYTES_MIN};
use super::read_faults::ReadFaults;
use crate::medium;
use bytes::Bytes;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A file of the log. Whatever needs its content holds a reference.
#[derive(Debug)]
pub struct Segment {
    /// Number of the segment, which is never used again.
    pub number: u64,
    pub(super) file: File,
    /// The segment opened for direct I/O; `None` if long bodies are written through the page cache too.
    pub(super) direct: Option<File>,
    /// Bytes that survive the loss of power, as far as this process knows.
    pub(super) synced: AtomicU64,
    /// The file is kept when the segment is not needed any more, because it has damage and may hold the last copy of
    /// some bytes.
    pub(super) is_preserved: AtomicBool,
    faults: ReadFaults,
}

impl Segment {
    pub(super) fn open(number: u64, file: File, direct: Option<File>, faults: ReadFaults) -> Arc<Self> {
        let (synced, is_preserved) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Self { number, file, direct, synced, is_preserved, faults })
    }

    /// Returns the length of the file in bytes.
    pub fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    pub(super) fn preserve(&self) {
        self.is_preserved.store(true, Ordering::Release);
    }

    pub(super) fn read_into(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.faults.check(self.number, &(at..at + bytes.len() as u64))?;
        self.file.read_exact_at(bytes, at)
    }

    /// Flips bits of a byte. For simulators.
    pub(super) fn flip(&self, at: u64, bits: u8) -> io::Result<()> {
        let mut byte = [0];
        self.file.read_exact_at(&mut byte, at)?;
        self.file.write_all_at(&[byte[0] ^ bits], at)
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        let len = self.len_bytes()?;
        self.file.sync_data()?;
        self.synced.fetch_max(len, Ordering::AcqRel);
        Ok(())
    }

    /// Returns whether everything up to an offset survives the loss of power.
    pub fn is_synced_to(&self, end: u64) -> bool {
        self.synced.load(Ordering::Acquire) >= end
    }

    /// Reads a range.
    pub fn read(&self, range: &Range<u64>) -> io::Result<Bytes> {
        medium::retry_read(|| self.read_once(range))
    }

    fn read_once(&self, range: &Range<u64>) -> io::Result<Bytes> {
        self.faults.check(self.number, range)?;
        let len = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
        if let Some(direct) = self.direct.as_ref().filter(|_| len >= DIRECT_BYTES_MIN) {
            match direct_io::read(direct, range) {
                Err(error) if error.kind() == ErrorKind::InvalidInput => {}
                read => return read,
            }
        }
        let mut bytes = Vec::with_capacity(len);
        // The buffer is not zeroed first. Its capacity may be larger than what was asked for.
        while bytes.len() < len {
            let at = range.start + bytes.len() as u64;
            match rustix::io::pread(&self.file, rustix::buffer::spare_capacity(&mut bytes), at) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        bytes.truncate(len);
        Ok(bytes.into())
    }
}
