//! A histogram of durations with a precision of three percent.

use serde::de::{Deserialize, Deserializer};
use serde::ser::{Serialize, SerializeStruct, Serializer};
use std::collections::BTreeMap;
use std::time::Duration;

/// Number of buckets between a duration and its double.
const BUCKETS_PER_OCTAVE: u64 = 32;

/// The distribution of the durations of operations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: BTreeMap<u64, u64>,
    count: u64,
    max: Duration,
}

impl Histogram {
    /// Adds a duration.
    pub fn record(&mut self, span: Duration) {
        *self.counts.entry(bucket(nanos(span))).or_default() += 1;
        self.count += 1;
        self.max = self.max.max(span);
    }

    /// Adds all durations of another histogram.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in &other.counts {
            *self.counts.entry(*bucket).or_default() += count;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the exact maximum.
    pub fn max(&self) -> Duration {
        self.max
    }

    /// Returns the duration that `share` (0 to 1) of all durations do not exceed; zero if the histogram is empty.
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = (share * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in &self.counts {
            seen += count;
            if seen >= wanted {
                return Duration::from_nanos(upper_end(*bucket)).min(self.max);
            }
        }
        self.max
    }
}

/// Serializes quantiles in microseconds for human readers, and the buckets, from which the histogram is deserialized.
impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let micros = |span: Duration| span.as_nanos() as f64 / 1000.0;
        let mut fields = serializer.serialize_struct("Histogram", 5)?;
        fields.serialize_field("count", &self.count)?;
        fields.serialize_field("p50_us", &micros(self.quantile(0.5)))?;
        fields.serialize_field("p99_us", &micros(self.quantile(0.99)))?;
        fields.serialize_field("max_us", &micros(self.max))?;
        fields.serialize_field("buckets", &self.counts.iter().collect::<Vec<_>>())?;
        fields.end()
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        struct Fields {
            count: u64,
            max_us: f64,
            buckets: Vec<(u64, u64)>,
        }
        let fields = Fields::deserialize(deserializer)?;
        let max = Duration::from_nanos((fields.max_us * 1000.0).round() as u64);
        Ok(Self { counts: fields.buckets.into_iter().collect(), count: fields.count, max })
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the bucket of a duration. Durations below 64 ns have one bucket each.
fn bucket(nanos: u64) -> u64 {
    let Some(shift) = (nanos / BUCKETS_PER_OCTAVE).checked_ilog2() else { return nanos };
    u64::from(shift) * BUCKETS_PER_OCTAVE + (nanos >> shift)
}

/// Returns the longest duration of a bucket, ns.
fn upper_end(bucket: u64) -> u64 {
    let shift = (bucket / BUCKETS_PER_OCTAVE).saturating_sub(1);
    ((u128::from(bucket - shift * BUCKETS_PER_OCTAVE + 1) << shift) - 1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_adjacent_and_narrow() {
        for nanos in (0..100_000).chain([1 << 40, u64::MAX]) {
            let bucket = bucket(nanos);
            assert!(upper_end(bucket) >= nanos, "{nanos} in {bucket}");
            assert!(upper_end(bucket) - nanos <= nanos / 32, "{nanos} in {bucket}");
            assert!(bucket == 0 || upper_end(bucket - 1) < nanos, "{nanos} in {bucket}");
        }
    }

    #[test]
    fn quantiles_are_within_three_percent() {
        let mut all = Histogram::default();
        for half in [0, 1] {
            let mut part = Histogram::default();
            (1..=1000u64).filter(|n| n % 2 == half).for_each(|n| part.record(Duration::from_micros(n)));
            all.merge(&part);
        }
        assert_eq!((all.count(), all.max()), (1000, Duration::from_micros(1000)));
        for (share, micros) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = all.quantile(share).as_secs_f64() * 1e6;
            assert!((found / micros - 1.0).abs() < 0.032, "{share}: {found}");
        }
        assert_eq!(Histogram::default().quantile(0.5), Duration::ZERO);
        let read: Histogram = serde_json::from_value(serde_json::to_value(&all).unwrap()).unwrap();
        assert_eq!(read, all);
    }
}
