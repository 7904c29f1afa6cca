//! A clock that moves only when told.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use store::{Clock, Timestamp};

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
impl Default for SimClock {
    fn default() -> Self {
        Self::new(Timestamp::from_secs(1_767_268_800, 0))
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_moves_only_when_told() {
        let clock = SimClock::new(Timestamp(5));
        assert_eq!(clock.now(), Timestamp(5));
        assert_eq!(clock.advance(Duration::from_nanos(3)), Timestamp(8));
        clock.set(Timestamp(1));
        assert_eq!(clock.now(), Timestamp(1));
    }
}
