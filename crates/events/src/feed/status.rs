//! The status of a feed: counters, lag and the last failure.

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
    /// [`FeedCounts::lag`] in nanoseconds.
    lag: AtomicI64,
    waiting: Mutex<Option<u64>>,
    last_error: Mutex<Option<String>>,
}

/// A handle for reading a feed's status.
#[derive(Debug, Clone)]
pub struct FeedStatus(pub(super) Arc<Counters>);

/// The counters of a feed since its start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeedCounts {
    /// Number of messages that were received from the source.
    pub messages: u64,
    /// Number of hints that all sinks have taken.
    pub hints: u64,
    /// Messages that became dead letters, because they could not be read completely.
    pub unreadable: u64,
    /// Unreadable messages that could not be written as dead letters.
    pub lost: u64,
    /// Batches, and reports of lost events, that were delivered to a sink again.
    pub repeated: u64,
    /// Failures of the source or of a sink.
    pub failures: u64,
    /// Whether the source's last answer was a success.
    pub is_connected: bool,
    /// The age of the newest hint of the last batch when all sinks had taken it. It compares the clocks of both sides.
    pub lag: Duration,
    /// The number of messages in the source that no reader had received when they were last counted, a few seconds ago;
    /// `None` if the source does not or cannot report it.
    pub waiting: Option<u64>,
    /// The text of the last failure.
    pub last_error: Option<String>,
}

impl FeedStatus {
    /// Returns the current counters.
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
    pub(super) fn add_messages(&self, count: usize) {
        self.messages.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(super) fn add_hints(&self, hints: &[Hint<'_>], now: Timestamp) {
        self.hints.fetch_add(hints.len() as u64, Ordering::Relaxed);
        if let Some(newest) = hints.iter().filter_map(|hint| hint.time).max() {
            self.lag.store(now.0.saturating_sub(newest.0), Ordering::Relaxed);
        }
    }

    pub(super) fn add_unreadable(&self, is_kept: bool) {
        let counter = if is_kept { &self.unreadable } else { &self.lost };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_repeated(&self) {
        self.repeated.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn record_failure(&self, why: &str) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_owned());
    }

    pub(super) fn waiting(&self) -> Option<u64> {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_waiting(&self, waiting: Option<u64>) {
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = waiting;
    }

    pub(super) fn set_connected(&self, is_connected: bool) {
        self.is_connected.store(is_connected, Ordering::Relaxed);
    }
}
