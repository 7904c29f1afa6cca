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
pub(super) struct MinThroughput {
    /// Time spent waiting for bytes since the last progress.
    waited: Duration,
    /// Bytes received since the last progress.
    bytes: u64,
}

impl MinThroughput {
    /// Returns the waiting time since the last progress.
    pub(super) fn waited(&self) -> Duration {
        self.waited
    }

    /// Adds time that was spent waiting for the next bytes of the body.
    pub(super) fn add_waiting(&mut self, waited: Duration) {
        self.waited += waited;
    }

    /// Adds received bytes. If they make up the minimum, starts over and returns `true`.
    pub(super) fn add_bytes(&mut self, bytes: u64) -> bool {
        self.bytes += bytes;
        let has_progress = self.bytes >= PROGRESS_BYTES;
        if has_progress {
            *self = Self::default();
        }
        has_progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trickle_is_not_progress() {
        let mut throughput = MinThroughput::default();
        for _ in 0..10 {
            throughput.add_waiting(Duration::from_secs(1));
            assert!(!throughput.add_bytes(1));
        }
        assert_eq!(throughput.waited(), Duration::from_secs(10));
        assert!(throughput.add_bytes(PROGRESS_BYTES));
        assert_eq!(throughput.waited(), Duration::ZERO);
    }
}
