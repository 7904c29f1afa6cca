//! The mark that says up to where a log is synced.
//!
//! A small file beside the log: number of a segment (8 bytes), offset in it (8), CRC-32C of both (4), little-endian. It
//! is written after each sync and not synced itself: an older mark claims less, and nothing wrong.

use crate::Crc;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

const MARK_BYTES: usize = 20;

/// Position up to which a log is known to be synced: a segment and an offset in it. All earlier segments are synced
/// too. A log in one file has the segment 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SyncMark(Option<(u64, u64)>);

impl SyncMark {
    /// No position is known: there is no mark, as in logs of older versions, or it is damaged.
    pub(crate) const UNKNOWN: Self = Self(None);

    pub(crate) fn at(segment: u64, end: u64) -> Self {
        Self(Some((segment, end)))
    }

    /// Reads a mark. A missing or damaged one is unknown.
    pub(crate) fn read(path: &Path) -> Self {
        let Ok(bytes) = std::fs::read(path) else { return Self::UNKNOWN };
        let Some((mark, [])) = bytes.split_first_chunk::<MARK_BYTES>() else { return Self::UNKNOWN };
        let (segment, rest) = mark.split_at(8);
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let found = (number(segment), number(&rest[..8]));
        if encode(found) == *mark { Self(Some(found)) } else { Self::UNKNOWN }
    }

    /// Opens the file of a mark for writing, and creates it if it is missing.
    pub(crate) fn open(path: &Path) -> io::Result<File> {
        File::options().create(true).truncate(false).write(true).open(path)
    }

    /// Writes a mark to its file, without a sync. Writes nothing if the mark is unknown.
    pub(crate) fn write(self, file: &File) -> io::Result<()> {
        self.0.map_or(Ok(()), |position| file.write_all_at(&encode(position), 0))
    }

    /// Returns whether the byte at an offset was synced; `None`: unknown.
    pub(crate) fn covers(self, segment: u64, at: u64) -> Option<bool> {
        self.0.map(|mark| (segment, at) < mark)
    }

    /// Returns the offset up to which a segment was synced; `None` if the mark is unknown or in another segment.
    pub(crate) fn end_in(self, segment: u64) -> Option<u64> {
        self.0.filter(|(marked, _)| *marked == segment).map(|(_, end)| end)
    }
}

fn encode((segment, end): (u64, u64)) -> [u8; MARK_BYTES] {
    let mut bytes = [0; MARK_BYTES];
    bytes[..8].copy_from_slice(&segment.to_le_bytes());
    bytes[8..16].copy_from_slice(&end.to_le_bytes());
    let sum = Crc::of(&bytes[..16]);
    bytes[16..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_a_damaged_one_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("synced");
        assert_eq!(SyncMark::read(&path), SyncMark::UNKNOWN);
        let mark = SyncMark::at(3, 1 << 40);
        mark.write(&SyncMark::open(&path).unwrap()).unwrap();
        assert_eq!(SyncMark::read(&path), mark);
        assert_eq!((mark.covers(2, u64::MAX), mark.covers(3, 1 << 40)), (Some(true), Some(false)));
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(SyncMark::read(&path), SyncMark::UNKNOWN);
        }
    }
}
