//! Counters of a webhook.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a webhook since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WebhookCounts {
    /// Events that are queued or in flight.
    pub queued: u64,
    /// Events that the receiver accepted.
    pub sent: u64,
    /// Attempts to post an event that failed and were followed by another one.
    pub retried: u64,
    /// Events that became dead letters.
    pub failed: u64,
    /// Events that could not even become dead letters.
    pub dropped: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) queued: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) retried: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) dropped: AtomicU64,
}

impl Counters {
    /// Returns the current counters.
    pub(super) fn now(&self) -> WebhookCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WebhookCounts {
            queued: of(&self.queued),
            sent: of(&self.sent),
            retried: of(&self.retried),
            failed: of(&self.failed),
            dropped: of(&self.dropped),
        }
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
