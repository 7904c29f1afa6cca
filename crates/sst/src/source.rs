//! Where the bytes of a table are.

use bytes::Bytes;
use std::io;

/// Somewhere that a table lies: memory, a file, blocks of a device.
pub trait Source: Send + Sync {
    /// The length of the table, exactly, in bytes.
    fn len_bytes(&self) -> u64;

    /// Exactly `len` bytes from `at` on; asked only for what lies within [`Source::len_bytes`].
    ///
    /// The cache keeps the bytes themselves: of a slice of more it keeps all in memory, and counts the slice.
    ///
    /// # Errors
    ///
    /// The bytes cannot be read.
    fn read_at(&self, at: u64, len: usize) -> io::Result<Bytes>;

    /// Bytes that were read once and are not what was written, as `is_right` knows, from where else the source has them.
    fn read_otherwise(&self, at: u64, len: usize, is_right: &dyn Fn(&[u8]) -> bool) -> Option<Bytes> {
        let _nowhere_else = (at, len, is_right);
        None
    }
}

impl Source for Bytes {
    fn len_bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, at: u64, len: usize) -> io::Result<Bytes> {
        let start = usize::try_from(at).ok();
        let range = start.and_then(|start| Some(start..start.checked_add(len)?));
        match range {
            Some(range) if range.end <= self.len() => Ok(self.slice(range)),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
