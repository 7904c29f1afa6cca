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
/// Random reads after which fetches in a file that fits into memory become twice as wide.
const READS_PER_DOUBLING: u32 = 16;
/// Maximum doublings of such fetches: to 4 MiB.
const DOUBLINGS_MAX: u32 = 5;

/// Access pattern of one handle.
#[derive(Debug, Default)]
pub(crate) struct Readahead {
    /// Offset at which the next sequential read would begin.
    expected: u64,
    /// End of the ranges requested ahead; 0 after a jump.
    frontier: u64,
    /// Number of bytes to request ahead of a sequential reader.
    window: u64,
    /// Consecutive reads that were close to the previous one.
    near: u32,
    /// Random reads so far.
    jumps: u32,
}

impl Readahead {
    /// Returns the ranges that a read of `read` should request, in a file of `size` bytes and with `window_max` bytes
    /// of memory. They may be cached already.
    pub(crate) fn plan(&mut self, read: Range<u64>, size: u64, window_max: u64) -> Vec<Range<u64>> {
        let read = read.start..read.end.min(size);
        if read.is_empty() {
            return Vec::new();
        }
        if !self.is_sequential(&read) {
            (self.expected, self.frontier, self.window) = (read.end, 0, 0);
            return vec![self.around(&read, size, window_max)];
        }
        self.expected = self.expected.max(read.end);
        if self.frontier < read.end {
            self.frontier = read.start;
        }
        self.ahead(read.end, size, window_max.min(WINDOW_MAX_BYTES))
    }

    /// Returns the range to fetch for a random read. Reads that keep returning to a file that fits into memory will need all of it,
    /// so they fetch more and more at once.
    fn around(&mut self, read: &Range<u64>, size: u64, memory: u64) -> Range<u64> {
        let doublings = if size <= memory { (self.jumps / READS_PER_DOUBLING).min(DOUBLINGS_MAX) } else { 0 };
        self.jumps = self.jumps.saturating_add(1);
        let width = RANDOM_BYTES << doublings;
        match doublings {
            0 => read.start..(read.start + width).max(read.end).min(size),
            _ => read.start / width * width..read.end.next_multiple_of(width).min(size),
        }
    }

    /// Returns the offset below which a sequential reader will not read again, even if the kernel reorders its
    /// requests; 0 for a random reader.
    pub(crate) fn passed(&self) -> u64 {
        self.read_in_order().saturating_sub(DISORDER_BYTES)
    }

    /// Returns how far a sequential reader has read; 0 for a random one.
    pub(crate) fn read_in_order(&self) -> u64 {
        if self.is_random() { 0 } else { self.expected }
    }

    /// Returns whether the last read did not continue the one before it.
    pub(crate) fn is_random(&self) -> bool {
        self.frontier == 0
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

    /// Regression: each of 2,000 random reads in a file of 256 MiB was a request of its own.
    #[test]
    fn random_reads_that_return_to_a_file_fetch_it_in_few_requests() {
        let plan_all = |memory: u64| {
            let (mut ahead, mut at, mut widest) = (Readahead::default(), 1, 0);
            let mut fetched = std::collections::BTreeSet::new();
            let mut requests = 0;
            for _ in 0..4000 {
                at = (at * 25_214_903_917 + 11) % (256 * MIB);
                let read = at / 4096 * 4096..at / 4096 * 4096 + 4096;
                let [range] = ahead.plan(read.clone(), 256 * MIB, memory).try_into().unwrap();
                assert!(range.start <= read.start && read.end <= range.end && range.end <= 256 * MIB);
                widest = widest.max(range.end - range.start);
                let pages = range.start / 4096..range.end.div_ceil(4096);
                requests += usize::from(!fetched.contains(&(read.start / 4096)));
                fetched.extend(pages);
            }
            (requests, widest)
        };
        let (requests, widest) = plan_all(512 * MIB);
        assert!(requests <= 250 && widest <= 4 * MIB, "{requests} requests");
        let (requests, widest) = plan_all(128 * MIB);
        assert!(
            requests >= 1000 && widest <= 2 * RANDOM_BYTES,
            "a file that does not fit: {requests} requests"
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
