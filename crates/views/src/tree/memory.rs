//! The memory of all views of a tree.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit on the memory of all views, and what they use.
#[derive(Debug)]
pub(super) struct ViewsMemory {
    max_bytes: usize,
    used_bytes: AtomicUsize,
}

impl ViewsMemory {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, used_bytes: AtomicUsize::new(0) }
    }

    pub(super) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Notes that a view uses more or less than before.
    pub(super) fn note(&self, before_bytes: usize, now_bytes: usize) {
        // Wraps around for a decrease, as the sum does.
        self.used_bytes.fetch_add(now_bytes.wrapping_sub(before_bytes), Ordering::Relaxed);
    }

    /// Returns whether `bytes` fit besides what all views use.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        self.used_bytes.load(Ordering::Relaxed).saturating_add(bytes) <= self.max_bytes
    }
}
