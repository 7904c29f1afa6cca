//! Locks by key: each key is claimed by one holder at a time.
//!
//! To claim two keys without a deadlock, the smaller one is claimed first.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// A set of locks, one per key. A key is any value that identifies what is locked, such as an object's key or a
/// number.
#[derive(Debug)]
pub struct Claims<K: Eq + Hash> {
    keys: Mutex<HashSet<K>>,
    freed: Notify,
}

/// A claimed key, which is freed when the claim is dropped.
#[derive(Debug)]
pub struct Claim<'c, K: Eq + Hash> {
    claims: &'c Claims<K>,
    key: K,
}

impl<K: Eq + Hash> Default for Claims<K> {
    fn default() -> Self {
        Self { keys: Mutex::default(), freed: Notify::new() }
    }
}

impl<K: Eq + Hash + Ord + Clone> Claims<K> {
    /// Waits until the key is free and claims it.
    pub async fn claim(&self, key: &K) -> Claim<'_, K> {
        loop {
            let freed = self.freed.notified();
            if self.lock().insert(key.clone()) {
                return Claim { claims: self, key: key.clone() };
            }
            freed.await;
        }
    }

    /// Claims two different keys. The first claim returned is that of `one`.
    ///
    /// # Panics If the keys are equal: the second claim would wait forever.
    pub async fn claim_both(&self, one: &K, other: &K) -> (Claim<'_, K>, Claim<'_, K>) {
        assert!(one != other, "a key cannot be claimed twice");
        if one < other {
            let first = self.claim(one).await;
            (first, self.claim(other).await)
        } else {
            let second = self.claim(other).await;
            (self.claim(one).await, second)
        }
    }
}

impl<K: Eq + Hash> Claims<K> {
    fn lock(&self) -> MutexGuard<'_, HashSet<K>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash> Drop for Claim<'_, K> {
    fn drop(&mut self) {
        self.claims.lock().remove(&self.key);
        self.claims.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_claim_waits_for_the_first() {
        let claims = Claims::default();
        let (a, b) = ("a", "b");
        let (first, second) = claims.claim_both(&b, &a).await;
        let mut next = std::pin::pin!(claims.claim(&b));
        assert!(futures_util::poll!(&mut next).is_pending());
        drop(second);
        drop(claims.claim(&a).await);
        assert!(futures_util::poll!(&mut next).is_pending());
        drop(first);
        next.await;
    }
}
