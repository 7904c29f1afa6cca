//! Keys that somebody is about to change.
//!
//! Storing an object and naming it are two steps. Whoever takes both claims the key meanwhile, so that two changes
//! of one mount under one key do not take each other's objects for a stranger's: a new file waits until the one
//! that had its name is gone, and until a rename to its name has happened or been given up.
//!
//! Order: a file's work, then `moves`, then claims; of two keys the smaller first.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::ObjectKey;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Claims {
    keys: Mutex<HashSet<ObjectKey>>,
    freed: Notify,
}

/// One claimed key; free again when dropped.
#[derive(Debug)]
pub(crate) struct Claim<'c> {
    claims: &'c Claims,
    key: ObjectKey,
}

impl Claims {
    /// Waits until nobody else has the key.
    pub(crate) async fn claim(&self, key: &ObjectKey) -> Claim<'_> {
        loop {
            let freed = self.freed.notified();
            if self.lock().insert(key.clone()) {
                return Claim { claims: self, key: key.clone() };
            }
            freed.await;
        }
    }

    /// Both of two different keys; the first claim is the first key's.
    pub(crate) async fn claim_both(&self, one: &ObjectKey, other: &ObjectKey) -> (Claim<'_>, Claim<'_>) {
        assert_ne!(one, other, "a key cannot be claimed twice");
        if one < other {
            let first = self.claim(one).await;
            (first, self.claim(other).await)
        } else {
            let second = self.claim(other).await;
            (self.claim(one).await, second)
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<ObjectKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.lock().remove(&self.key);
        self.claims.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_comes_next_waits_for_who_was_first() {
        let claims = Claims::default();
        let (a, b) = (ObjectKey::try_from("a").unwrap(), ObjectKey::try_from("b").unwrap());
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
