//! Locks by key: each key is locked by one holder at a time.
//!
//! To lock two keys without a deadlock, the smaller one is locked first.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// A set of locks, one per key. A key is any value that identifies what is locked, such as an object's key or a
/// number.
#[derive(Debug)]
pub struct KeyedLocks<K: Eq + Hash> {
    keys: Mutex<HashSet<K>>,
    freed: Notify,
}

/// A locked key, which is unlocked when this guard is dropped.
#[derive(Debug)]
pub struct KeyLock<'l, K: Eq + Hash> {
    locks: &'l KeyedLocks<K>,
    key: K,
}

impl<K: Eq + Hash> Default for KeyedLocks<K> {
    fn default() -> Self {
        Self { keys: Mutex::default(), freed: Notify::new() }
    }
}

impl<K: Eq + Hash + Ord + Clone> KeyedLocks<K> {
    /// Waits until the key is free, and locks it.
    pub async fn lock(&self, key: &K) -> KeyLock<'_, K> {
        loop {
            let freed = self.freed.notified();
            if self.held().insert(key.clone()) {
                return KeyLock { locks: self, key: key.clone() };
            }
            freed.await;
        }
    }

    /// Locks two different keys. The first guard returned is that of `one`.
    ///
    /// Panics if the keys are equal, because the second lock would wait forever.
    pub async fn lock_both(&self, one: &K, other: &K) -> (KeyLock<'_, K>, KeyLock<'_, K>) {
        assert!(one != other, "one holder cannot lock a key twice");
        if one < other {
            let first = self.lock(one).await;
            (first, self.lock(other).await)
        } else {
            let second = self.lock(other).await;
            (self.lock(one).await, second)
        }
    }
}

impl<K: Eq + Hash> KeyedLocks<K> {
    /// Returns whether a key is locked now.
    pub fn is_locked(&self, key: &K) -> bool {
        self.held().contains(key)
    }

    /// Returns the keys that are locked now.
    fn held(&self) -> MutexGuard<'_, HashSet<K>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash> Drop for KeyLock<'_, K> {
    fn drop(&mut self) {
        self.locks.held().remove(&self.key);
        self.locks.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_claim_waits_for_the_first() {
        let locks = KeyedLocks::default();
        let (a, b) = ("a", "b");
        let (first, second) = locks.lock_both(&b, &a).await;
        let mut next = std::pin::pin!(locks.lock(&b));
        assert!(futures_util::poll!(&mut next).is_pending());
        drop(second);
        assert!(!locks.is_locked(&a) && locks.is_locked(&b));
        drop(locks.lock(&a).await);
        assert!(futures_util::poll!(&mut next).is_pending());
        drop(first);
        next.await;
        assert!(!locks.is_locked(&a) && !locks.is_locked(&b));
    }
}
