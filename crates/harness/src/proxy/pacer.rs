//! Latency and bandwidth of a network, imitated on the loopback interface.

use crate::Stopwatch;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Time for which unused bandwidth is kept. It makes up for sleeps that last longer than asked.
const BURST: Duration = Duration::from_millis(5);
/// Shorter waits are left to the next piece: a sleep is not that precise.
const SLEEP_MIN: Duration = Duration::from_millis(1);

/// The properties of a network between a client and an endpoint. The default adds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shape {
    /// Round-trip time, added to each response and each new connection.
    pub latency: Duration,
    /// Bytes per second in each direction, over all connections; `None`: unlimited.
    pub bandwidth_bytes: Option<u64>,
}

/// A direction of transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Up,
    Down,
}

/// The pacers of both directions.
#[derive(Debug)]
pub(super) struct Pacers {
    latency: Duration,
    started: Stopwatch,
    up: Option<Mutex<Pacer>>,
    down: Option<Mutex<Pacer>>,
}

impl Pacers {
    pub(super) fn new(shape: Shape) -> Self {
        let pacer = || shape.bandwidth_bytes.map(|rate| Mutex::new(Pacer::new(rate)));
        Self { latency: shape.latency, started: Stopwatch::start(), up: pacer(), down: pacer() }
    }

    pub(super) fn wait_round_trip(&self) {
        if !self.latency.is_zero() {
            thread::sleep(self.latency);
        }
    }

    /// Waits until the network has taken this many bytes.
    pub(super) fn wait_for_bytes(&self, direction: Direction, bytes: usize) {
        let pacer = match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        };
        let Some(pacer) = pacer else { return };
        let now = self.started.elapsed();
        let wait = pacer.lock().unwrap_or_else(PoisonError::into_inner).reserve(now, bytes);
        if wait >= SLEEP_MIN {
            thread::sleep(wait);
        }
    }
}

/// A link that transfers a fixed number of bytes per second.
#[derive(Debug)]
struct Pacer {
    bytes_per_second: u64,
    /// Time at which all reserved bytes have passed.
    free_at: Duration,
}

impl Pacer {
    fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), free_at: Duration::ZERO }
    }

    /// Reserves the link for bytes that are sent at `now`, and returns how long they take to pass.
    fn reserve(&mut self, now: Duration, bytes: usize) -> Duration {
        let span = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        self.free_at = self.free_at.max(now.saturating_sub(BURST)) + span;
        self.free_at.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pacer_transfers_its_rate_although_sleeps_are_too_long() {
        let mut pacer = Pacer::new(1_000_000);
        let mut now = Duration::ZERO;
        for _ in 0..1000 {
            let wait = pacer.reserve(now, 1000);
            now +=
                if wait >= SLEEP_MIN { wait + Duration::from_micros(300) } else { Duration::from_micros(10) };
        }
        let error = now.as_secs_f64() - 1.0;
        assert!(error.abs() < 0.02, "{error}");
    }

    #[test]
    fn idle_time_is_not_kept() {
        let mut pacer = Pacer::new(1000);
        pacer.reserve(Duration::ZERO, 1000);
        assert!(pacer.reserve(Duration::from_secs(100), 1000) > Duration::from_millis(990));
    }
}
