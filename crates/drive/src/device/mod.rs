//! The seam below the drive: blocks that are read, written and flushed.
//!
//! Owns [`BlockDevice`], the memory that goes to and from devices ([`Buffer`]), and the devices there are: a block
//! device or a file by blocking calls ([`FileDevice`]) and by io_uring ([`Ring`]). [`Io`] is how those ask who await.
//!
//! Refuses: to know what the blocks hold, and to cache them.

mod awaited;
mod buffer;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod file;
#[cfg(test)]
mod loopback;
mod ring;

pub use awaited::Io;
pub use buffer::{Buffer, Buffers};
pub use file::{FileDevice, OpenError};
pub use ring::Ring;

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

/// Whether a range can be read: `UnexpectedEof` for one that does not lie on a device of that length. For those who
/// implement [`BlockDevice`]; positions and lengths that are no multiples of a block are the caller's mistake.
pub fn check_read(len_bytes: u64, at: u64, bytes: usize) -> io::Result<()> {
    check_range(len_bytes, at, bytes, io::ErrorKind::UnexpectedEof)
}

/// Whether a range can be written: as [`check_read`], but `StorageFull`.
pub fn check_write(len_bytes: u64, at: u64, bytes: usize) -> io::Result<()> {
    check_range(len_bytes, at, bytes, io::ErrorKind::StorageFull)
}

fn check_range(len_bytes: u64, at: u64, bytes: usize, beyond: io::ErrorKind) -> io::Result<()> {
    let bytes = bytes as u64;
    assert!(
        at.is_multiple_of(BLOCK_BYTES) && bytes.is_multiple_of(BLOCK_BYTES),
        "{bytes} bytes at {at} are no whole blocks"
    );
    if at.checked_add(bytes).is_some_and(|end| end <= len_bytes) {
        return Ok(());
    }
    Err(io::Error::new(beyond, format!("{bytes} bytes at {at} are beyond the device's end at {len_bytes}")))
}
