//! The seam below the drive: blocks that are read, written and flushed.

use std::fmt;
use std::io;

/// What a device is read and written by: every position and length is a multiple of it, in bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// A block device, or what stands for one. Calls may run at the same time, for ranges that do not overlap.
///
/// A write is on the medium when a [`flush`](Self::flush) that began after it has returned, not before: until then the
/// loss of power may undo it in whole or in part, and in any order with others.
pub trait BlockDevice: Send + Sync + fmt::Debug {
    /// Its length in bytes.
    fn len_bytes(&self) -> u64;

    /// Fills the buffer from a position on. Beyond the end is `UnexpectedEof`.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Stores all of the bytes from a position on. Beyond the end is `StorageFull`.
    fn write_at(&self, at: u64, from: &[u8]) -> io::Result<()>;

    /// Returns when everything that was written before is on the medium.
    fn flush(&self) -> io::Result<()>;
}
