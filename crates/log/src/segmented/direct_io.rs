//! Direct I/O for long bodies: a copy into page-cache pages that were not used before costs several times what the
//! disk does.
//!
//! Invariants: whole blocks of a body are written directly, and the bytes before and after them through the page
//! cache, so that no block is written both ways. After a sync, direct writes are as durable as others.

use bytes::Bytes;
use rustix::fs::OFlags;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// Minimum length of a body for direct I/O, in bytes. Shorter bodies go through the page cache, where they may be
/// read soon.
pub(super) const DIRECT_BYTES_MIN: usize = 1 << 20;
/// Block size of direct I/O, on disk and in memory.
const BLOCK_BYTES: usize = 4096;
/// Maximum length of one direct write, in bytes.
const STAGED_BYTES: usize = 2 << 20;
/// Minimum speed of direct writes. With a slower disk the page cache is the better place to wait.
const BYTES_PER_SEC_MIN: u64 = 200 << 20;
/// A slow disk is tried again with the segment of this number after those that showed that it is slow.
const SLOW_DISK_SEGMENTS: u32 = 16;

/// Opens a file for direct I/O; `None` if that fails, as on file systems that do not support it.
pub(super) fn open(path: &Path) -> Option<File> {
    File::options().read(true).write(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path).ok()
}

/// Writes the bodies of long records by direct I/O.
#[derive(Debug, Default)]
pub(super) struct DirectWriter {
    /// Buffer with room for a block of alignment.
    staging: Vec<u8>,
    speed: DiskSpeed,
}

impl DirectWriter {
    /// Decides whether the segment that begins now is written directly.
    pub(super) fn decide_direct(&mut self) -> bool {
        self.speed.decide_direct()
    }

    /// Writes pieces, one after the other, at an offset of a file that is open both ways.
    pub(super) fn write(&mut self, file: &File, direct: &File, at: u64, pieces: &[&[u8]]) -> io::Result<()> {
        let began = Instant::now();
        if self.staging.is_empty() {
            self.staging = vec![0; STAGED_BYTES + BLOCK_BYTES];
        }
        let aligned = self.staging.as_ptr().align_offset(BLOCK_BYTES);
        let staging = &mut self.staging[aligned..aligned + STAGED_BYTES];
        let before = (at.next_multiple_of(BLOCK_BYTES as u64) - at) as usize;
        let (mut at, mut filled, mut before) = (at, 0, before);
        for piece in pieces {
            let (head, mut rest) = piece.split_at(before.min(piece.len()));
            file.write_all_at(head, at)?;
            before -= head.len();
            at += head.len() as u64;
            while !rest.is_empty() {
                let (part, left) = rest.split_at(rest.len().min(STAGED_BYTES - filled));
                staging[filled..filled + part.len()].copy_from_slice(part);
                filled += part.len();
                rest = left;
                if filled == STAGED_BYTES {
                    write_blocks(file, direct, staging, at)?;
                    at += filled as u64;
                    filled = 0;
                }
            }
        }
        let (blocks, tail) = staging[..filled].split_at(filled - filled % BLOCK_BYTES);
        write_blocks(file, direct, blocks, at)?;
        file.write_all_at(tail, at + blocks.len() as u64)?;
        self.speed.record_write(pieces.iter().map(|piece| piece.len() as u64).sum(), began.elapsed());
        Ok(())
    }
}

/// Writes whole blocks. Disks with larger blocks refuse direct writes; then the page cache is used.
fn write_blocks(file: &File, direct: &File, blocks: &[u8], at: u64) -> io::Result<()> {
    match direct.write_all_at(blocks, at) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => file.write_all_at(blocks, at),
        written => written,
    }
}

/// Reads a range of a file that was written directly. `InvalidInput`: the disk has larger blocks.
pub(super) fn read(direct: &File, range: &Range<u64>) -> io::Result<Bytes> {
    let block = BLOCK_BYTES as u64;
    let from = range.start - range.start % block;
    let wanted = usize::try_from(range.end - from).map_err(io::Error::other)?;
    let mut bytes = vec![0; wanted.next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES];
    let aligned = bytes.as_ptr().align_offset(BLOCK_BYTES);
    let end = bytes.len() - (BLOCK_BYTES - aligned);
    let mut read = 0;
    // A file may end inside its last block, and a read ends there.
    while read < wanted {
        match direct.read_at(&mut bytes[aligned + read..end], from + read as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let begin = aligned + (range.start - from) as usize;
    Ok(Bytes::from(bytes).slice(begin..aligned + wanted))
}

/// Speed of the direct writes to a segment.
#[derive(Debug, Default)]
struct DiskSpeed {
    bytes: u64,
    took: Duration,
    /// The number of segments after which one is written directly again; 0 while segments are written directly.
    skipped: u32,
}

impl DiskSpeed {
    fn record_write(&mut self, bytes: u64, took: Duration) {
        self.bytes += bytes;
        self.took += took;
    }

    fn decide_direct(&mut self) -> bool {
        let (bytes, took) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.took));
        if took.as_secs_f64() * BYTES_PER_SEC_MIN as f64 > bytes as f64 {
            self.skipped = SLOW_DISK_SEGMENTS;
        }
        self.skipped = self.skipped.saturating_sub(1);
        self.skipped == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_written_at_any_offset_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
        let direct = open(&path).expect("the disk of the tests must support direct I/O");
        let mut writer = DirectWriter::default();
        let (mut at, mut expected) = (0_u64, Vec::new());
        for (number, lens) in [&[100][..], &[STAGED_BYTES, 7], &[1, 4000, 5000, 3 << 20], &[BLOCK_BYTES], &[]]
            .into_iter()
            .enumerate()
        {
            let bodies: Vec<Vec<u8>> = lens
                .iter()
                .enumerate()
                .map(|(piece, len)| (0..*len).map(|byte| (byte * 7 + piece + number) as u8).collect())
                .collect();
            let pieces: Vec<&[u8]> = bodies.iter().map(Vec::as_slice).collect();
            writer.write(&file, &direct, at, &pieces).unwrap();
            expected.extend(pieces.concat());
            at = expected.len() as u64;
        }
        assert!(std::fs::read(&path).unwrap() == expected);
        let len = expected.len() as u64;
        for range in [0..len, 1..2, 99..(1 << 20) + 3, len - 5000..len, len - 1..len, 4096..8192] {
            let read = read(&direct, &range).unwrap();
            assert!(read == expected[range.start as usize..range.end as usize], "{range:?}");
        }
        let beyond = read(&direct, &(len - 1..len + 1)).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_slow_disk_is_written_through_the_page_cache_for_a_while() {
        let mut speed = DiskSpeed::default();
        assert!(speed.decide_direct());
        speed.record_write(64 << 20, Duration::from_millis(100));
        assert!(speed.decide_direct(), "640 MiB/s");
        speed.record_write(64 << 20, Duration::from_secs(1));
        let until = (0..100).take_while(|_| !speed.decide_direct()).count();
        assert_eq!(until, SLOW_DISK_SEGMENTS as usize - 1);
    }
}
