//! The seam below the drive: devices whose blocks are read, written and flushed.
//!
//! Owns [`BlockDevice`], the memory that goes to and from devices ([`Buffer`]), and the implementations: a block device or file by
//! blocking calls ([`FileDevice`]), the same by io_uring ([`Ring`]), and several devices as one ([`Array`]). [`Io`] is the interface
//! for async callers.
//!
//! Does not know what the blocks hold, and does not cache them.

mod alternate_read;
mod array;
mod async_io;
mod block_device;
mod buffer;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod fail_stop;
mod file;
mod huge_pages;
#[cfg(test)]
mod loopback;
mod pace;
mod ring;
mod verified_read;

pub use alternate_read::AlternateReader;
#[cfg(feature = "fuzz")]
pub(crate) use array::fuzz_label;
pub(crate) use array::{ARRAY_MAGIC, ARRAY_ROWS_AT, ARRAY_VERSION};
pub use array::{Array, ArrayInfo, Found, MEMBERS_MAX, MemberState, Rebuilt, Shape};
pub use async_io::Io;
pub use block_device::{BLOCK_BYTES, BlockDevice, ScrubbedRows, check_read, check_write};
pub(crate) use buffer::BufferBuilder;
pub use buffer::{Buffer, Buffers};
pub(crate) use fail_stop::FailStopDevice;
pub use file::{FileDevice, OpenError};
pub use pace::Pace;
pub use ring::Ring;
pub(crate) use verified_read::{read_verified, reconstruct};

/// Blocks this thread until a future is ready.
///
/// Calls of an array block, and are also made from Tokio tasks. Tokio gives a task a budget of channel polls before it must return to
/// the runtime. With an exhausted budget every channel reports "pending" and wakes the task at once. A blocking call never returns to
/// the runtime, so under the budget it would poll for ever.
fn block_on<F: Future>(future: F) -> F::Output {
    futures_executor::block_on(tokio::task::unconstrained(future))
}
