//! A latency histogram with fixed buckets, which any number of threads fill.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets in seconds. An operation that the caches answer takes about 10 µs, a request to a
/// distant store about 100 ms, and a retried one many seconds.
pub const BOUNDS_SECONDS: [f64; 20] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1,
    0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// [`BOUNDS_SECONDS`] in nanoseconds.
const BOUNDS_NS: [u64; BOUNDS_SECONDS.len()] = {
    let mut bounds = [0; BOUNDS_SECONDS.len()];
    let mut at = 0;
    while at < bounds.len() {
        // Rounded, because 0.000_025 is not an exact binary fraction.
        bounds[at] = (BOUNDS_SECONDS[at] * 1e9 + 0.5) as u64;
        at += 1;
    }
    bounds
};

/// Counts of durations by bucket.
#[derive(Debug)]
pub struct Histogram {
    /// The last bucket has no upper bound.
    buckets: [AtomicU64; BOUNDS_NS.len() + 1],
    sum_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)), sum_ns: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Records one duration.
    pub fn record(&self, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_NS.partition_point(|bound| *bound < took_ns);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(took_ns, Ordering::Relaxed);
    }

    /// Returns the counts so far. Durations that are recorded meanwhile may be missing in some of the figures.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let mut sum = 0;
        let cumulative = std::array::from_fn(|at| {
            sum += self.buckets[at].load(Ordering::Relaxed);
            sum
        });
        HistogramSnapshot { cumulative, sum_seconds: self.sum_ns.load(Ordering::Relaxed) as f64 / 1e9 }
    }
}

/// The counts of a histogram at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct HistogramSnapshot {
    /// Number of durations up to each of [`BOUNDS_SECONDS`]; the last entry counts all.
    pub cumulative: [u64; BOUNDS_SECONDS.len() + 1],
    /// Sum of all durations in seconds.
    pub sum_seconds: f64,
}

impl HistogramSnapshot {
    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.cumulative[BOUNDS_SECONDS.len()]
    }

    /// Returns both histograms together.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            cumulative: std::array::from_fn(|at| self.cumulative[at] + other.cumulative[at]),
            sum_seconds: self.sum_seconds + other.sum_seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_in_the_bucket_of_their_bound() {
        let histogram = Histogram::default();
        for took in [0, 10_000, 10_001, 25_000, 30_000_000_000, 30_000_000_001, u64::MAX] {
            histogram.record(Duration::from_nanos(took));
        }
        let counts = histogram.snapshot();
        assert_eq!(counts.cumulative[..3], [2, 4, 4]);
        assert_eq!(counts.cumulative[BOUNDS_SECONDS.len() - 1..], [5, 7]);
        assert_eq!(counts.count(), 7);
    }

    #[test]
    fn bounds_are_the_same_in_both_units() {
        for (seconds, ns) in BOUNDS_SECONDS.iter().zip(BOUNDS_NS) {
            assert_eq!((seconds * 1e9).round() as u64, ns);
        }
        assert!(BOUNDS_NS.is_sorted());
    }

    #[test]
    fn sums_are_in_seconds() {
        let histogram = Histogram::default();
        histogram.record(Duration::from_millis(250));
        histogram.record(Duration::from_millis(500));
        let counts = histogram.snapshot();
        assert!((counts.sum_seconds - 0.75).abs() < 1e-9);
        assert_eq!(counts.plus(&counts).count(), 4);
    }
}
