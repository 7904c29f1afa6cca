//! The clock that orders what a mount observes and changes.
//!
//! Invariants: every moment that [`Moments::now`] returns is later than all that it returned before, also in earlier
//! mounts; the wall clock, which can step, has no influence.

use meta::Moment;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::{Clock, Timestamp};

/// The clock of one mount: the monotonic time since the mount began, together with the mount's number.
#[derive(Debug)]
pub(crate) struct Moments {
    clock: Arc<dyn Clock>,
    /// The number of this mount of the metadata, which is greater than those of earlier mounts.
    mount: u64,
    /// Reading of the monotonic clock at the mount.
    began: Duration,
    /// The newest moment returned, in nanoseconds since the mount began.
    last: AtomicU64,
}

impl Moments {
    pub(crate) fn new(clock: Arc<dyn Clock>, mount: u64) -> Self {
        Self { began: clock.monotonic(), clock, mount, last: AtomicU64::new(0) }
    }

    /// Returns a moment later than all before.
    pub(crate) fn now(&self) -> Moment {
        let elapsed = nanos(self.clock.monotonic().saturating_sub(self.began));
        let next = |last: u64| elapsed.max(last.saturating_add(1));
        let last = self.last.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |last| Some(next(last)));
        Moment { mount: self.mount, nanos: next(last.unwrap_or_else(|last| last)) }
    }

    /// Returns the moment of a reading of the monotonic clock; before the mount, a moment that is older than every other.
    pub(crate) fn at(&self, reading: Duration) -> Moment {
        let elapsed = reading.checked_sub(self.began).map(nanos);
        elapsed.map_or_else(Moment::default, |nanos| Moment { mount: self.mount, nanos })
    }

    /// Returns the wall-clock time of a moment of this mount, as the clock is set now; `None` for a moment of an earlier mount.
    pub(crate) fn wall(&self, moment: Moment) -> Option<Timestamp> {
        let age = self.now().since(moment);
        let age = (moment.mount == self.mount).then(|| i64::try_from(age.as_nanos()).unwrap_or(i64::MAX))?;
        Some(Timestamp(self.clock.now().0.saturating_sub(age)))
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A settable wall clock and monotonic clock.
    #[derive(Debug)]
    struct FakeClock(Mutex<(i64, u64)>);

    impl Clock for FakeClock {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.lock().unwrap().0)
        }

        fn monotonic(&self) -> Duration {
            Duration::from_nanos(self.0.lock().unwrap().1)
        }
    }

    #[test]
    fn moments_grow_whatever_the_wall_clock_does() {
        let clock = Arc::new(FakeClock(Mutex::new((1_000, 50))));
        let moments = Moments::new(clock.clone(), 3);
        let first = moments.now();
        let second = moments.now();
        assert!(first < second && second.mount == 3, "moments grow even while the clock stands still");
        *clock.0.lock().unwrap() = (10, 150);
        let third = moments.now();
        assert_eq!((third.since(second) > Duration::ZERO, third.nanos), (true, 100));
        assert_eq!(moments.at(Duration::from_nanos(150)), third);
        assert_eq!(moments.at(Duration::from_nanos(49)), Moment::default());
        *clock.0.lock().unwrap() = (2_000, 250);
        assert_eq!(moments.wall(third), Some(Timestamp(1_900)));
        assert_eq!(moments.wall(Moment { mount: 2, nanos: 7 }), None);
    }
}
