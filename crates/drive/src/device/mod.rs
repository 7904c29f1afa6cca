//! The seam below the drive: devices whose blocks are read, written and flushed.
//!
//! Owns [`BlockDevice`], the memory that goes to and from devices ([`Buffer`]), and the implementations: a block device or file by
//! blocking calls ([`FileDevice`]), the same by io_uring ([`Ring`]), and several devices as one ([`Array`]). [`Io`] is the interface
//! for async callers.
//!
//! Does not know what the blocks hold, and does not cache them.

mod array;
mod async_io;
mod buffer;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod file;
mod huge_pages;
#[cfg(test)]
mod loopback;
mod ring;
mod verified_read;

#[cfg(feature = "fuzz")]
pub(crate) use array::fuzz_label;
pub use array::{Array, ArrayInfo, Found, MEMBERS_MAX, MemberState, Rebuilt, Shape};
pub use async_io::Io;
pub(crate) use buffer::BufferBuilder;
pub use buffer::{Buffer, Buffers};
pub use file::{FileDevice, OpenError};
pub use ring::Ring;
pub(crate) use verified_read::{read_reconstructed, read_verified};

use std::fmt;
use std::io;

/// Blocks this thread until a future is ready.
///
/// Calls of an array block, and are also made from Tokio tasks. Tokio gives a task a budget of channel polls before it must return to
/// the runtime. With an exhausted budget every channel reports "pending" and wakes the task at once. A blocking call never returns to
/// the runtime, so under the budget it would poll for ever.
fn block_on<F: Future>(future: F) -> F::Output {
    futures_executor::block_on(tokio::task::unconstrained(future))
}

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

    /// Returns the number of alternative ways to read the same bytes, for a caller that finds them wrong.
    fn ways(&self) -> usize {
        0
    }

    /// Like [`read_at`](Self::read_at), by one of the alternatives, each of which reads without a certain device below. After an error the
    /// contents of the buffer are undefined.
    fn read_without(&self, way: usize, at: u64, into: &mut [u8]) -> io::Result<()> {
        let _only_one = way;
        self.read_at(at, into)
    }

    /// Rewrites in place the blocks that made this range wrong. The range was right when it was read by the alternative `way`. It must
    /// not be written by others meanwhile.
    fn mend(&self, way: usize, at: u64, len_bytes: u64) -> io::Result<()> {
        let _nothing_else = (way, at, len_bytes);
        Ok(())
    }

    /// Reads everything that the devices below hold of a range, also what no other read asks for (parity), and rewrites unreadable
    /// blocks. Wrong parity is rewritten too, if the data `is_right`. Returns a line for each block that stays unreadable. The range must
    /// not be written by others meanwhile.
    fn scrub_rows(&self, at: u64, len_bytes: u64, is_right: bool) -> io::Result<Vec<String>> {
        let _nothing = (at, len_bytes, is_right);
        Ok(Vec::new())
    }

    /// Returns the number of blocks below that were rewritten since the device was opened.
    fn repaired_blocks(&self) -> u64 {
        0
    }
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
