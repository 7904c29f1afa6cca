//! One change of a key at a time.

use std::hash::{DefaultHasher, Hash, Hasher};
use tokio::sync::{Mutex, MutexGuard};

/// So many keys can be changed at the same time, if they do not share a lock by chance.
const LOCKS: usize = 1024;

/// Locks of keys, fewer than keys.
#[derive(Debug)]
pub(crate) struct KeyLocks(Vec<Mutex<()>>);

/// What is held while a key is changed.
pub(crate) type Held<'a> = MutexGuard<'a, ()>;

impl Default for KeyLocks {
    fn default() -> Self {
        Self((0..LOCKS).map(|_| Mutex::default()).collect())
    }
}

impl KeyLocks {
    /// Waits until nobody else changes the key.
    pub(crate) async fn hold(&self, bucket: u64, key: &[u8]) -> Held<'_> {
        self.0[place(bucket, key)].lock().await
    }

    /// Waits until nobody else changes one of two keys.
    pub(crate) async fn hold_both(&self, bucket: u64, keys: [&[u8]; 2]) -> [Option<Held<'_>>; 2] {
        let [one, other] = keys.map(|key| place(bucket, key));
        let first = self.0[one.min(other)].lock().await;
        let second = if one == other { None } else { Some(self.0[one.max(other)].lock().await) };
        [Some(first), second]
    }
}

fn place(bucket: u64, key: &[u8]) -> usize {
    let mut hasher = DefaultHasher::new();
    (bucket, key).hash(&mut hasher);
    (hasher.finish() % LOCKS as u64) as usize
}
