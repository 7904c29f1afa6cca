//! Alternate reads: read bytes of an array without one of its members, for callers that found the bytes wrong.

use std::fmt;
use std::io;

/// A reader of a device that leaves out one of the devices below it, and remembers the ranges that were read.
pub struct AlternateReader<'a> {
    read: &'a dyn Fn(u64, &mut [u8]) -> io::Result<()>,
    /// Position and length of each range that was read, in bytes.
    ranges: Vec<(u64, usize)>,
}

impl<'a> AlternateReader<'a> {
    pub(super) fn new(read: &'a dyn Fn(u64, &mut [u8]) -> io::Result<()>) -> Self {
        Self { read, ranges: Vec::new() }
    }

    /// Fills the buffer from a position on. After an error the contents of the buffer are undefined.
    pub fn read_at(&mut self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.ranges.push((at, into.len()));
        (self.read)(at, into)
    }

    pub(super) fn into_ranges(self) -> Vec<(u64, usize)> {
        self.ranges
    }
}

impl fmt::Debug for AlternateReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlternateReader").field("ranges", &self.ranges).finish_non_exhaustive()
    }
}
