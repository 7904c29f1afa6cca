//! The bytes held of a share of the memory limit. A caller that gets none does not wait, as the holders may be idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory_limit::{MemoryLimit, Share};

/// Limit on the bytes held at one time.
#[derive(Debug, Clone)]
pub(crate) struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    memory: Arc<MemoryLimit>,
    /// The share of the memory limit that bounds the bytes held.
    share: Share,
    /// Bytes held now.
    held: AtomicU64,
}

/// Bytes held; released on drop.
#[derive(Debug)]
pub(crate) struct Held {
    budget: Budget,
    bytes: u64,
}

impl Budget {
    pub(crate) fn new(memory: Arc<MemoryLimit>, share: Share) -> Self {
        Self(Arc::new(Inner { memory, share, held: AtomicU64::new(0) }))
    }

    /// Takes the bytes; `None` if the share has fewer left.
    pub(crate) fn try_hold(&self, bytes: u64) -> Option<Held> {
        let limit = self.limit_bytes();
        let take = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= limit);
        self.0.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok()?;
        Some(Held { budget: self.clone(), bytes })
    }

    /// Takes the bytes even beyond the limit, for the one buffer that progress depends on.
    pub(crate) fn hold_beyond_limit(&self, bytes: u64) -> Held {
        self.0.held.fetch_add(bytes, Ordering::AcqRel);
        Held { budget: self.clone(), bytes }
    }

    /// Returns the bytes held by all holders.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.0.held.load(Ordering::Acquire)
    }

    /// Returns the bytes of the share, which may be less than is held after it became smaller.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.0.memory.share_bytes(self.0.share)
    }
}

impl Held {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Grows to `to_bytes` if the difference is free; returns whether it did.
    pub(crate) fn try_grow(&mut self, to_bytes: u64) -> bool {
        let Some(more) = to_bytes.checked_sub(self.bytes) else { return true };
        match self.budget.try_hold(more) {
            Some(mut extra) => {
                self.bytes += std::mem::take(&mut extra.bytes);
                true
            }
            None => false,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.0.held.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_bytes_count_until_they_are_dropped() {
        let memory = Arc::new(MemoryLimit::new(4400));
        let budget = Budget::new(memory.clone(), Share::Reads);
        assert_eq!(budget.limit_bytes(), 968);
        let mut first = budget.try_hold(600).unwrap();
        assert!(budget.try_hold(500).is_none());
        assert!(first.try_grow(900));
        assert!(!first.try_grow(1100));
        memory.reserve(2200);
        assert_eq!((budget.limit_bytes(), budget.held_bytes()), (484, 900));
        assert!(budget.try_hold(1).is_none());
        drop(first);
        assert_eq!(budget.held_bytes(), 0);
    }

    /// Bytes that were added to held ones kept a reference to the budget for ever, so that each closed file system left some memory behind.
    #[test]
    fn a_budget_is_dropped_after_its_bytes() {
        let budget = Budget::new(Arc::new(MemoryLimit::new(4400)), Share::Reads);
        let mut held = budget.try_hold(600).unwrap();
        assert!(held.try_grow(900));
        drop(held);
        assert_eq!(Arc::strong_count(&budget.0), 1);
    }
}
