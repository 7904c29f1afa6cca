//! What a feed did so far, and how far it is behind.

use crate::Hint;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use store::Timestamp;

#[derive(Debug, Default)]
pub(super) struct Counters {
    messages: AtomicU64,
    hints: AtomicU64,
    unreadable: AtomicU64,
    lost: AtomicU64,
    repeated: AtomicU64,
    failures: AtomicU64,
    is_connected: AtomicBool,
    /// Nanoseconds.
    lag: AtomicI64,
    waiting: Mutex<Option<u64>>,
    last_error: Mutex<Option<String>>,
}

/// Where to ask how a feed goes.
#[derive(Debug, Clone)]
pub struct FeedStatus(pub(super) Arc<Counters>);

/// What a feed did so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeedCounts {
    /// Messages that were received.
    pub messages: u64,
    /// Hints that all sinks have taken.
    pub hints: u64,
    /// Messages that are dead letters, for nobody could read all of them.
    pub unreadable: u64,
    /// Messages that should be dead letters and could not be written.
    pub lost: u64,
    /// Batches that were handed to a sink again.
    pub repeated: u64,
    /// Failures of the source or of a sink.
    pub failures: u64,
    /// Whether the source answered when it was last asked.
    pub is_connected: bool,
    /// How old the newest hint of the last batch was when all sinks had taken it, by the clocks of both sides.
    pub lag: Duration,
    /// How many messages the source had that nobody had received, a few seconds ago; `None` if it does not tell.
    pub waiting: Option<u64>,
    /// The last failure.
    pub last_error: Option<String>,
}

impl FeedStatus {
    /// What the feed did so far.
    pub fn counts(&self) -> FeedCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.0;
        FeedCounts {
            messages: read(&counters.messages),
            hints: read(&counters.hints),
            unreadable: read(&counters.unreadable),
            lost: read(&counters.lost),
            repeated: read(&counters.repeated),
            failures: read(&counters.failures),
            is_connected: counters.is_connected.load(Ordering::Relaxed),
            lag: Duration::from_nanos(u64::try_from(counters.lag.load(Ordering::Relaxed)).unwrap_or(0)),
            waiting: counters.waiting(),
            last_error: counters.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl Counters {
    pub(super) fn messages(&self, count: usize) {
        self.messages.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(super) fn took(&self, hints: &[Hint<'_>], now: Timestamp) {
        self.hints.fetch_add(hints.len() as u64, Ordering::Relaxed);
        if let Some(newest) = hints.iter().filter_map(|hint| hint.time).max() {
            self.lag.store(now.0.saturating_sub(newest.0), Ordering::Relaxed);
        }
    }

    pub(super) fn unreadable(&self, is_kept: bool) {
        let counter = if is_kept { &self.unreadable } else { &self.lost };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn repeated(&self) {
        self.repeated.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn failed(&self, why: &str) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_owned());
    }

    pub(super) fn waiting(&self) -> Option<u64> {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_waiting(&self, waiting: Option<u64>) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = waiting;
    }

    pub(super) fn is_connected(&self, is_connected: bool) {
        self.is_connected.store(is_connected, Ordering::Relaxed);
    }
}
