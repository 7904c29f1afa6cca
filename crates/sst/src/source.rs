//! The storage that a table is read from.

use bytes::Bytes;
use std::io;

/// Storage that holds one table: memory, a file, blocks of a device.
pub trait Source: Send + Sync {
    /// Returns the exact length of the table, in bytes.
    fn len_bytes(&self) -> u64;

    /// Reads exactly `len` bytes at `at`. The range lies within [`Source::len_bytes`].
    ///
    /// The cache keeps the returned [`Bytes`]. If they are a slice of a larger buffer, the whole buffer stays in memory, although
    /// the cache counts only the slice.
    ///
    /// # Errors
    ///
    /// The bytes cannot be read.
    fn read_at(&self, at: u64, len: usize) -> io::Result<Bytes>;

    /// Returns the bytes of a range from another copy, when the bytes read first were wrong; `is_right` recognises right bytes.
    /// `None` if the source has no other copy, which is the default, or if no copy is right.
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
