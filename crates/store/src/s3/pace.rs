//! Whether the bytes of a body come fast enough to be waited for.
//!
//! A connection can be alive and all but useless: one byte every few seconds never looks like silence. So a body counts
//! as silent when, in the time that it may be silent, less than [`PROGRESS_BYTES`] came. Only waiting counts: a reader
//! who takes his time says nothing about the server.

use std::time::Duration;

/// Less than this in one [`Timeouts::stall`](super::Timeouts::stall) is as good as nothing, in bytes: 200 a second.
const PROGRESS_BYTES: u64 = 4 << 10;

/// What came of a body since it last got on.
#[derive(Debug, Default)]
pub(super) struct Pace {
    waited: Duration,
    bytes: u64,
}

impl Pace {
    /// How long it was waited since the body last got on.
    pub(super) fn waited(&self) -> Duration {
        self.waited
    }

    /// It was waited so long.
    pub(super) fn waits(&mut self, so_long: Duration) {
        self.waited += so_long;
    }

    /// Some bytes came; whether the body got on by them.
    pub(super) fn came(&mut self, bytes: u64) -> bool {
        self.bytes += bytes;
        let gets_on = self.bytes >= PROGRESS_BYTES;
        if gets_on {
            *self = Self::default();
        }
        gets_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trickle_is_as_good_as_nothing() {
        let mut pace = Pace::default();
        for _ in 0..10 {
            pace.waits(Duration::from_secs(1));
            assert!(!pace.came(1));
        }
        assert_eq!(pace.waited(), Duration::from_secs(10));
        assert!(pace.came(PROGRESS_BYTES));
        assert_eq!(pace.waited(), Duration::ZERO);
    }
}
