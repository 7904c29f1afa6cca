//! Clocks that do not look at the machine's.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use store::{Clock, Timestamp};
use tokio::time::Instant;

/// A simulated clock. Shared by an `Arc`, it is the one time of a world.
#[derive(Debug)]
pub struct SimClock(AtomicI64);

impl SimClock {
    /// A clock that stands at `start`.
    pub fn new(start: Timestamp) -> Self {
        Self(AtomicI64::new(start.0))
    }

    /// Moves on and says the new time.
    pub fn advance(&self, by: Duration) -> Timestamp {
        let by = i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
        Timestamp(self.0.fetch_add(by, Ordering::SeqCst).saturating_add(by))
    }

    /// Jumps, back if need be, as a machine's clock does when it is set.
    pub fn set(&self, to: Timestamp) {
        self.0.store(to.0, Ordering::SeqCst);
    }
}

/// Noon of the first of January 2026, UTC: a clock of no particular seed starts there.
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

/// The time of one paused runtime after the other: it moves with their sleeps, and a microsecond whenever it is
/// looked at, as no two moments of a machine are the same.
#[derive(Debug)]
pub struct RuntimeClock {
    /// Time of the clock if it had never been set.
    now: AtomicI64,
    /// How far it was set forward, in nanoseconds.
    set: AtomicI64,
    last_seen: Mutex<Option<Instant>>,
}

/// How far the clock moves when it is looked at, in nanoseconds.
const TICK_NS: i64 = 1_000;

impl RuntimeClock {
    /// Sets the wall clock forward or back by nanoseconds, as an operator or NTP does. No time passes.
    pub fn set_by(&self, by: i64) {
        self.set.fetch_add(by, Ordering::SeqCst);
    }

    /// A new runtime's time begins where the last one's ended. Called inside of it.
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
