//! Read-ahead of one handle. Pure: positions in, ranges out.

use std::ops::Range;

/// Maximum reordering of a sequential reader's requests by the kernel's threads.
const DISORDER_BYTES: u64 = 4 << 20;
/// Consecutive reads close to each other after which a handle counts as sequential with reordered requests.
const NEAR_READS: u32 = 4;
/// A sequential reader's first window.
const WINDOW_MIN_BYTES: u64 = 1 << 20;
/// The largest window: four requests of [`FETCH_BYTES_MAX`] in flight.
const WINDOW_MAX_BYTES: u64 = 32 << 20;
/// Maximum bytes of one request.
const FETCH_BYTES_MAX: u64 = 8 << 20;
/// Objects up to this length are fetched whole, wherever they are read.
pub(crate) const WHOLE_BYTES_MAX: u64 = 1 << 20;
/// Minimum bytes fetched by a random read.
const RANDOM_BYTES: u64 = 128 << 10;

/// Access pattern of one handle.
#[derive(Debug, Default)]
pub(crate) struct Readahead {
    /// Offset at which the next sequential read would begin.
    expected: u64,
    /// End of the ranges requested ahead; 0 after a jump.
    frontier: u64,
    window: u64,
    /// Consecutive reads that were close to the previous one.
    near: u32,
}

impl Readahead {
    /// Returns the requests that a read of `read` should start, in a file of `size` bytes and with `window_max` bytes of
    /// memory.
    pub(crate) fn plan(&mut self, read: Range<u64>, size: u64, window_max: u64) -> Vec<Range<u64>> {
        let read = read.start..read.end.min(size);
        if read.is_empty() {
            return Vec::new();
        }
        if !self.is_sequential(&read) {
            (self.expected, self.frontier, self.window) = (read.end, 0, 0);
            return Vec::from_iter(Some(read.start..(read.start + RANDOM_BYTES).max(read.end).min(size)));
        }
        self.expected = self.expected.max(read.end);
        if self.frontier < read.end {
            self.frontier = read.start;
        }
        self.ahead(read.end, size, window_max.min(WINDOW_MAX_BYTES))
    }

    /// Returns the offset below which a sequential reader does not read again.
    pub(crate) fn passed(&self) -> u64 {
        self.read_in_order().saturating_sub(DISORDER_BYTES)
    }

    /// Returns how far a sequential reader has read; 0 for a random one.
    pub(crate) fn read_in_order(&self) -> u64 {
        if self.frontier == 0 { 0 } else { self.expected }
    }

    /// Returns whether the read continues the previous one, allowing for reordered requests.
    fn is_sequential(&mut self, read: &Range<u64>) -> bool {
        let follows = read.start == self.expected;
        let is_near =
            read.start <= self.expected + DISORDER_BYTES && read.end + DISORDER_BYTES >= self.expected;
        self.near = if is_near { self.near + 1 } else { 0 };
        follows || is_near && (self.frontier > 0 || self.near >= NEAR_READS)
    }

    /// Returns the requests that refill the window. It is refilled only once half of it is used, so that requests stay large.
    fn ahead(&mut self, end: u64, size: u64, window_max: u64) -> Vec<Range<u64>> {
        let left = self.frontier.saturating_sub(end);
        if self.frontier >= size || (self.frontier > end && left > self.window / 2) {
            return Vec::new();
        }
        self.window = (self.window * 2).clamp(WINDOW_MIN_BYTES, window_max.max(WINDOW_MIN_BYTES));
        let until = (end + self.window).min(size);
        let mut requests = Vec::new();
        while self.frontier < until {
            let stop = (self.frontier + FETCH_BYTES_MAX).min(until);
            requests.push(self.frontier..stop);
            self.frontier = stop;
        }
        requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_small_file_is_one_request() {
        assert_eq!(Readahead::default().plan(0..131_072, 70_000, 64 * MIB), vec![0..70_000]);
    }

    #[test]
    fn a_read_from_the_middle_is_one_small_request() {
        let mut ahead = Readahead::default();
        assert_eq!(
            ahead.plan(100 * MIB..100 * MIB + 4096, 256 * MIB, 64 * MIB),
            vec![100 * MIB..100 * MIB + 131_072]
        );
    }

    #[test]
    fn a_sequential_reader_is_kept_ahead_without_gap_or_overlap() {
        let (mut ahead, mut covered) = (Readahead::default(), 0);
        for at in (0..256 * MIB).step_by(131_072) {
            for request in ahead.plan(at..at + 131_072, 256 * MIB, 64 * MIB) {
                assert_eq!(request.start, covered);
                covered = request.end;
                assert!(request.end - request.start <= FETCH_BYTES_MAX);
            }
            assert!(covered >= at + 131_072, "the read itself is always covered");
        }
        assert_eq!(covered, 256 * MIB);
    }

    #[test]
    fn requests_that_overtake_each_other_are_still_sequential() {
        let mut ahead = Readahead::default();
        let mut requests = 0;
        for pair in (0..64 * MIB).step_by(2 << 20) {
            for at in [pair + MIB, pair] {
                requests += ahead.plan(at..at + MIB, 64 * MIB, 64 * MIB).len();
            }
        }
        assert!(requests <= 24, "{requests} requests for 64 MiB");
    }

    #[test]
    fn memory_bounds_the_window() {
        let mut ahead = Readahead::default();
        for at in (0..64 * MIB).step_by(131_072) {
            ahead.plan(at..at + 131_072, 256 * MIB, 2 * MIB);
            assert!(ahead.frontier <= at + 131_072 + 2 * MIB);
        }
    }
}
