//! Monotonic timestamps, which order observations of the store and local changes.
//!
//! Invariant: a moment never comes from the wall clock, which may be set back. A later mount has a greater number, and the
//! nanoseconds within a mount only grow, so a moment of a later mount is always greater than one of an earlier mount.

use std::time::Duration;

/// A point in time during a mount. Ordered by mount, then by time within the mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment {
    /// The number of the mount, see [`Namespace::mount`](crate::Namespace::mount). 0 in records written before mounts were numbered.
    pub mount: u64,
    /// Nanoseconds since the start of the mount, from a monotonic clock.
    pub nanos: u64,
}

impl Moment {
    /// Returns the time from `earlier` to this moment: zero if `earlier` is not earlier, [`Duration::MAX`] if `earlier` belongs
    /// to an earlier mount.
    pub fn since(self, earlier: Self) -> Duration {
        match earlier.mount.cmp(&self.mount) {
            std::cmp::Ordering::Less => Duration::MAX,
            std::cmp::Ordering::Equal => Duration::from_nanos(self.nanos.saturating_sub(earlier.nanos)),
            std::cmp::Ordering::Greater => Duration::ZERO,
        }
    }

    /// Returns the moment `span` after this one.
    pub fn after(self, span: Duration) -> Self {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self { nanos: self.nanos.saturating_add(span), ..self }
    }

    /// Returns the moment `span` before this one. Returns [`Moment::default`], the lowest moment, if that is before the mount began.
    pub fn before(self, span: Duration) -> Self {
        let nanos = u64::try_from(span.as_nanos()).ok().and_then(|span| self.nanos.checked_sub(span));
        nanos.map_or_else(Self::default, |nanos| Self { nanos, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_a_later_mount_are_greater() {
        let (earlier, later) = (Moment { mount: 1, nanos: u64::MAX }, Moment { mount: 2, nanos: 0 });
        assert!(Moment::default() < earlier && earlier < later);
        assert_eq!((later.since(earlier), earlier.since(later)), (Duration::MAX, Duration::ZERO));
        let at = Moment { mount: 2, nanos: 5 };
        assert_eq!((at.since(later), later.since(at)), (Duration::from_nanos(5), Duration::ZERO));
        assert_eq!(at.before(Duration::from_nanos(5)), later);
        assert_eq!(at.before(Duration::from_nanos(6)), Moment::default());
        assert_eq!(at.before(Duration::MAX), Moment::default());
    }
}
