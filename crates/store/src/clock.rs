//! Time and randomness as arguments.
//!
//! Product code below the front ends, the testbed excepted, takes the time of day and random numbers only from a [`Clock`] and an [`Entropy`]
//! that callers pass. It measures spans by the clock of the runtime (`tokio::time`), which a test can pause. So a seed reproduces a
//! simulation (`sim`) exactly.

use aws_lc_rs::hmac;
use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A moment: nanoseconds since the Unix epoch, from the year 1677 to 2262.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Makes a timestamp of seconds and nanoseconds, clamped to the range of the type.
    pub fn from_secs(secs: i64, nanos: u32) -> Self {
        let total = i128::from(secs) * 1_000_000_000 + i128::from(nanos);
        Self(total.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
    }

    /// Returns whole seconds, rounded down.
    pub fn secs(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }

    /// Returns the nanoseconds beyond [`Timestamp::secs`], below 1,000,000,000.
    pub fn subsec_nanos(self) -> u32 {
        self.0.rem_euclid(1_000_000_000) as u32
    }

    /// Returns the time from `earlier` to this moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Adds a duration, clamped to the range of the type.
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)))
    }

    /// Converts to the standard library's type.
    pub fn to_system_time(self) -> SystemTime {
        let magnitude = Duration::from_nanos(self.0.unsigned_abs());
        if self.0 >= 0 { UNIX_EPOCH + magnitude } else { UNIX_EPOCH - magnitude }
    }

    /// Converts from the standard library's type, clamped to the range of this one.
    pub fn from_system_time(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self(i64::try_from(after.as_nanos()).unwrap_or(i64::MAX)),
            Err(before) => Self(i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |n| -n)),
        }
    }
}

/// A source of time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the wall-clock time. It may be set back or forward at any time, so that it must neither order events nor
    /// measure durations.
    fn now(&self) -> Timestamp;

    /// Returns the time of a monotonic clock with an arbitrary origin: only the difference of two readings in one process
    /// has a meaning. The default implementation is for clocks whose wall-clock time never goes back, as in tests.
    fn monotonic(&self) -> Duration {
        Duration::from_nanos(u64::try_from(self.now().0).unwrap_or(0))
    }
}

/// The machine's clocks. No other code in the workspace reads them.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the only reader of the machine's clocks")]
    fn now(&self) -> Timestamp {
        Timestamp::from_system_time(SystemTime::now())
    }

    #[expect(clippy::disallowed_methods, reason = "the only reader of the machine's clocks")]
    fn monotonic(&self) -> Duration {
        static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);
        BEGINNING.elapsed()
    }
}

/// A pseudo-random number generator: for jitter and unique tags, not for secrets.
pub struct Entropy {
    state: AtomicU64,
    /// The HMAC key of [`Entropy::keyed`]. Without a key, all numbers can be computed from one of them.
    key: Option<hmac::Key>,
}

impl Entropy {
    /// Makes a SplitMix64 generator: the same seed gives the same numbers. All numbers can be computed from one of them,
    /// so that this generator is for tests and simulations.
    pub fn new(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed), key: None }
    }

    /// Makes a generator whose numbers cannot be predicted from each other: the first 8 bytes of HMAC-SHA-256 of a counter.
    pub fn keyed(seed: &[u8; 32]) -> Self {
        Self { state: AtomicU64::new(0), key: Some(hmac::Key::new(hmac::HMAC_SHA256, seed)) }
    }

    /// Returns the next number.
    pub fn next_u64(&self) -> u64 {
        if let Some(key) = &self.key {
            let count = self.state.fetch_add(1, Ordering::Relaxed);
            let tag = hmac::sign(key, &count.to_le_bytes());
            return tag.as_ref().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
        }
        let state = self.state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`; `bound` must not be 0.
    pub fn below(&self, bound: u64) -> u64 {
        assert!(bound > 0, "the bound must not be 0");
        self.next_u64() % bound
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: each response of the endpoint contained a SplitMix64 number, from which all later numbers can be computed.
    #[test]
    fn keyed_numbers_are_those_of_their_key_alone() {
        let (one, same, other) =
            (Entropy::keyed(&[7; 32]), Entropy::keyed(&[7; 32]), Entropy::keyed(&[8; 32]));
        let numbers: Vec<u64> = (0..100).map(|_| one.next_u64()).collect();
        assert!(numbers.iter().all(|number| *number == same.next_u64() && *number != other.next_u64()));
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), numbers.len());
    }
}
