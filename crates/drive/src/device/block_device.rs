//! The seam: a device whose blocks are read, written and flushed.

use super::AlternateReader;
use std::fmt;
use std::io;

/// The block size in bytes: every position and length of a read or a write is a multiple.
pub const BLOCK_BYTES: u64 = 4096;

/// A block device, or a stand-in for one. Calls may run concurrently if their ranges do not overlap.
///
/// A write is durable when a [`flush`](Self::flush) that began after the write ended has returned. Until then a loss of power may
/// undo it in whole or in part, in any order with other writes.
pub trait BlockDevice: Send + Sync + fmt::Debug {
    /// Returns the length in bytes.
    fn len_bytes(&self) -> u64;

    /// Returns the row size in bytes: every write is whole rows at multiples of it. Reads may be any blocks.
    fn row_bytes(&self) -> u64 {
        BLOCK_BYTES
    }

    /// Fills the buffer from a position on. Beyond the end: `UnexpectedEof`.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes all bytes from a position on. Beyond the end: `StorageFull`.
    fn write_at(&self, at: u64, from: &[u8]) -> io::Result<()>;

    /// Makes all earlier writes durable.
    fn flush(&self) -> io::Result<()>;

    /// Returns whether bytes can be reconstructed when they are wrong.
    fn has_redundancy(&self) -> bool {
        false
    }

    /// Calls `attempt` with alternative ways to read, each of which leaves out one of the devices below, until it returns true: the bytes
    /// that it read are right. Then rewrites in place the blocks that made these ranges wrong, and returns true. The ranges must not be
    /// written by others meanwhile.
    fn reconstruct(&self, attempt: &mut dyn FnMut(&mut AlternateReader<'_>) -> bool) -> bool {
        let _no_alternatives = attempt;
        false
    }

    /// Reads everything that the devices below hold of a range, also what no other read asks for (parity), and rewrites unreadable
    /// blocks. Wrong parity is rewritten too, if `is_verified`: the data is right as the devices have it. The range must not be written
    /// by others meanwhile.
    fn scrub_rows(&self, at: u64, len_bytes: u64, is_verified: bool) -> io::Result<ScrubbedRows> {
        let _nothing = (at, len_bytes, is_verified);
        Ok(ScrubbedRows::default())
    }

    /// Sets whether reads always ask the devices that have the bytes, also devices that have just failed other reads.
    fn read_directly(&self, always: bool) {
        let _only_way = always;
    }

    /// Returns the number of reads since the opening for which devices failed or were avoided. Right bytes from such a read do not prove that
    /// the bytes on those devices are right.
    fn indirect_reads(&self) -> u64 {
        0
    }

    /// Returns the number of wrong or unreadable blocks of the devices below that were rewritten since the device was
    /// opened.
    fn repaired_blocks(&self) -> u64 {
        0
    }
}

/// The outcome of a scrub of some rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScrubbedRows {
    /// A line for each block that stays unreadable.
    pub unreadable: Vec<String>,
    /// Whether parity differs from the data and was not rewritten.
    pub has_wrong_parity: bool,
}

/// Checks that a range can be read: `UnexpectedEof` if it does not lie on a device of this length. For implementations of
/// [`BlockDevice`]. Panics if position or length are no multiples of the block size, which is a bug of the caller.
pub fn check_read(len_bytes: u64, at: u64, bytes: usize) -> io::Result<()> {
    check_range(len_bytes, at, bytes, io::ErrorKind::UnexpectedEof)
}

/// Checks that a range can be written: like [`check_read`], but `StorageFull`.
pub fn check_write(len_bytes: u64, at: u64, bytes: usize) -> io::Result<()> {
    check_range(len_bytes, at, bytes, io::ErrorKind::StorageFull)
}

fn check_range(len_bytes: u64, at: u64, bytes: usize, beyond: io::ErrorKind) -> io::Result<()> {
    let bytes = bytes as u64;
    assert!(
        at.is_multiple_of(BLOCK_BYTES) && bytes.is_multiple_of(BLOCK_BYTES),
        "{bytes} bytes at {at} are not whole blocks"
    );
    if at.checked_add(bytes).is_some_and(|end| end <= len_bytes) {
        return Ok(());
    }
    Err(io::Error::new(beyond, format!("{bytes} bytes at {at} are beyond the device's end at {len_bytes}")))
}
