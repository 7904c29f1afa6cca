//! A share of the memory limit, in bytes. Callers never wait for memory that an idle holder keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Limit on the bytes held at one time.
#[derive(Debug, Clone)]
pub(crate) struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: u64,
    held: AtomicU64,
}

/// Bytes held; released on drop.
#[derive(Debug)]
pub(crate) struct Held {
    budget: Budget,
    bytes: u64,
}

impl Budget {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self(Arc::new(Inner { limit: limit_bytes, held: AtomicU64::new(0) }))
    }

    /// Takes the bytes if they are free.
    pub(crate) fn try_hold(&self, bytes: u64) -> Option<Held> {
        let take = |held: u64| held.checked_add(bytes).filter(|sum| *sum <= self.0.limit);
        self.0.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok()?;
        Some(Held { budget: self.clone(), bytes })
    }

    /// Takes the bytes even beyond the limit, for the one buffer that progress depends on.
    pub(crate) fn hold_beyond_limit(&self, bytes: u64) -> Held {
        self.0.held.fetch_add(bytes, Ordering::AcqRel);
        Held { budget: self.clone(), bytes }
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.0.held.load(Ordering::Acquire)
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.0.limit
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
            Some(extra) => {
                self.bytes += extra.bytes;
                std::mem::forget(extra);
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
    fn dropped_bytes_are_free_again() {
        let budget = Budget::new(10);
        let mut first = budget.try_hold(6).unwrap();
        assert!(budget.try_hold(5).is_none());
        assert!(first.try_grow(10));
        assert!(!first.try_grow(11));
        drop(first);
        assert_eq!(budget.held_bytes(), 0);
    }
}
