//! Clocks that do not read the machine's clock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use store::{Clock, Timestamp};
use tokio::time::Instant;

/// A simulated clock. A world shares it by an `Arc`.
#[derive(Debug)]
pub struct SimClock(AtomicI64);

impl SimClock {
    /// Makes a clock that shows `start`.
    pub fn new(start: Timestamp) -> Self {
        Self(AtomicI64::new(start.0))
    }

    /// Moves the clock forward and returns the new time.
    pub fn advance(&self, by: Duration) -> Timestamp {
        let by = i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
        Timestamp(self.0.fetch_add(by, Ordering::SeqCst).saturating_add(by))
    }

    /// Sets the time, forward or back, as an operator or NTP does.
    pub fn set(&self, to: Timestamp) {
        self.0.store(to.0, Ordering::SeqCst);
    }
}

/// Noon of 2026-01-01 UTC, the default start of a clock.
const NOON: Timestamp = Timestamp(1_767_268_800_000_000_000);

impl Default for SimClock {
    fn default() -> Self {
        Self::new(NOON)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// A clock that follows several paused runtimes in turn. It advances with their sleeps, and by a microsecond with each
/// reading, so that no two readings are equal.
#[derive(Debug)]
pub struct RuntimeClock {
    /// Time in nanoseconds without any change by [`set_by`](Self::set_by).
    now: AtomicI64,
    /// Sum of all changes by [`set_by`](Self::set_by), in nanoseconds.
    set: AtomicI64,
    last_seen: Mutex<Option<Instant>>,
}

/// Advance of the clock per reading, in nanoseconds.
const TICK_NS: i64 = 1_000;

impl RuntimeClock {
    /// Sets the wall clock forward or back by nanoseconds, as an operator or NTP does. The monotonic time stays.
    pub fn set_by(&self, by: i64) {
        self.set.fetch_add(by, Ordering::SeqCst);
    }

    /// Continues the time of the previous runtime in a new one. Must be called inside the new runtime.
    pub fn begin_runtime(&self) {
        *self.last_seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

impl Default for RuntimeClock {
    fn default() -> Self {
        Self { now: AtomicI64::new(NOON.0), set: AtomicI64::new(0), last_seen: Mutex::default() }
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        let elapsed = i64::try_from(self.monotonic().as_nanos()).unwrap_or(i64::MAX);
        Timestamp(elapsed.saturating_add(self.set.load(Ordering::SeqCst)))
    }

    fn monotonic(&self) -> Duration {
        let mut last_seen = self.last_seen.lock().unwrap_or_else(PoisonError::into_inner);
        let slept = match &mut *last_seen {
            None => Duration::ZERO,
            Some(last_seen) => {
                let now = Instant::now();
                now - std::mem::replace(last_seen, now)
            }
        };
        let by = slept.as_nanos() as i64 + TICK_NS;
        Duration::from_nanos((self.now.fetch_add(by, Ordering::SeqCst) + by) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_moves_only_on_request() {
        let clock = SimClock::new(Timestamp(5));
        assert_eq!(clock.now(), Timestamp(5));
        assert_eq!(clock.advance(Duration::from_nanos(3)), Timestamp(8));
        clock.set(Timestamp(1));
        assert_eq!(clock.now(), Timestamp(1));
    }
}
