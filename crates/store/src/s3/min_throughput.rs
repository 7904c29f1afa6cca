//! Minimum throughput of a response body.
//!
//! A connection that delivers one byte every few seconds never hits a plain timeout. So a body counts as stalled if less
//! than [`PROGRESS_BYTES`] arrive within the stall timeout. Only time spent waiting for the server counts, so that a slow
//! reader does not cause a timeout.

use std::time::Duration;

/// Minimum bytes per [`Timeouts::stall`](super::Timeouts::stall), about 200 per second by default.
const PROGRESS_BYTES: u64 = 4 << 10;

/// The waiting time and received bytes of a body since its last progress.
#[derive(Debug, Default)]
pub(super) struct Pace {
    waited: Duration,
    bytes: u64,
}

impl Pace {
    /// Returns the waiting time since the last progress.
    pub(super) fn waited(&self) -> Duration {
        self.waited
    }

    /// Adds waiting time.
    pub(super) fn waits(&mut self, so_long: Duration) {
        self.waited += so_long;
    }

    /// Adds received bytes. If they make up the minimum, starts over and returns `true`.
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
