//! The seam below the drive: blocks that are read, written and flushed.
//!
//! Owns [`BlockDevice`], the memory that goes to and from devices ([`Buffer`]), and the devices there are: a block
//! device or a file by blocking calls ([`FileDevice`]) and by io_uring ([`Ring`]), and several of them as one ([`Array`]). [`Io`] is how
//! those ask who await.
//!
//! Refuses: to know what the blocks hold, and to cache them.

mod array;
mod awaited;
mod buffer;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod file;
#[cfg(test)]
mod loopback;
mod memory;
mod right;
mod ring;

#[cfg(feature = "fuzz")]
pub(crate) use array::fuzz_label;
pub use array::{Array, ArrayInfo, Found, MEMBERS_MAX, MemberState, Rebuilt, Shape};
pub use awaited::Io;
pub(crate) use buffer::Filling;
pub use buffer::{Buffer, Buffers};
pub use file::{FileDevice, OpenError};
pub(crate) use right::{read_otherwise, read_right};
pub use ring::Ring;

use std::fmt;
use std::io;

/// Waits on this thread until a future is ready.
///
/// Calls of an array block, and are made from tasks of Tokio too. Such a task may poll only so many of Tokio's channels
/// before it returns to the runtime; beyond that every channel says "pending" and wakes the task at once. A blocking
/// call does not return to the runtime, so that with the budget in force it would poll for ever.
fn block_on<F: Future>(future: F) -> F::Output {
    futures_executor::block_on(tokio::task::unconstrained(future))
}

/// What a device is read and written by: every position and length is a multiple of it, in bytes.
pub const BLOCK_BYTES: u64 = 4096;

/// A block device, or what stands for one. Calls may run at the same time, for ranges that do not overlap.
///
/// A write is on the medium when a [`flush`](Self::flush) that began after it has returned, not before: until then the
/// loss of power may undo it in whole or in part, and in any order with others.
pub trait BlockDevice: Send + Sync + fmt::Debug {
    /// Its length in bytes.
    fn len_bytes(&self) -> u64;

    /// What it is written by, in bytes: every write is whole rows, which begin at multiples of it. Reads are any blocks.
    fn row_bytes(&self) -> u64 {
        BLOCK_BYTES
    }

    /// Fills the buffer from a position on. Beyond the end is `UnexpectedEof`.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()>;

    /// Stores all of the bytes from a position on. Beyond the end is `StorageFull`.
    fn write_at(&self, at: u64, from: &[u8]) -> io::Result<()>;

    /// Returns when everything that was written before is on the medium.
    fn flush(&self) -> io::Result<()>;

    /// How many ways there are to read the same bytes once more, for who finds that they are not what was written.
    fn ways(&self) -> usize {
        0
    }

    /// As [`read_at`](Self::read_at), in one of those ways: past another of the devices below. The buffer holds anything after an error.
    fn read_without(&self, way: usize, at: u64, into: &mut [u8]) -> io::Result<()> {
        let _only_one = way;
        self.read_at(at, into)
    }

    /// Writes anew, in place, what made these blocks wrong, which were right when they were read in this way; nobody writes to them
    /// meanwhile.
    fn mend(&self, way: usize, at: u64, len_bytes: u64) -> io::Result<()> {
        let _nothing_else = (way, at, len_bytes);
        Ok(())
    }

    /// Reads everything that the devices below have of these blocks, also what no other read asks for (parity), and writes anew what
    /// cannot be read; wrong parity too, where the data `is_right`. Returns a line for each block that stays unreadable. Nobody
    /// writes to the blocks meanwhile.
    fn scrub_rows(&self, at: u64, len_bytes: u64, is_right: bool) -> io::Result<Vec<String>> {
        let _nothing = (at, len_bytes, is_right);
        Ok(Vec::new())
    }

    /// How many blocks below were mended since it was opened.
    fn mended(&self) -> u64 {
        0
    }
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
