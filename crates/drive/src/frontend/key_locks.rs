//! Key locks: at most one change of a key at a time, and none in a bucket that is being deleted.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// Number of key locks. Keys share a lock if their hashes collide.
const LOCKS: usize = 1024;

/// Number of bucket locks.
const BUCKET_LOCKS: usize = 64;

/// Locks of keys and buckets, striped by hash. Lock order: names, buckets, keys; among buckets and among keys the lesser index first.
#[derive(Debug)]
pub(crate) struct KeyLocks {
    /// The lock of the names of buckets, their versioning states, and the drive's pool membership.
    names: Arc<Mutex<()>>,
    buckets: Vec<Arc<RwLock<()>>>,
    keys: Vec<Arc<Mutex<()>>>,
}

/// Locks held until a change is committed, even if its caller is cancelled.
#[derive(Debug, Default)]
#[expect(dead_code, reason = "they are held, not used")]
pub(crate) struct KeyGuard {
    /// Keeps others from locking the whole bucket.
    bucket: Option<OwnedRwLockReadGuard<()>>,
    /// The lock of all keys of a bucket.
    whole: Option<OwnedRwLockWriteGuard<()>>,
    key: Option<OwnedMutexGuard<()>>,
}

impl Default for KeyLocks {
    fn default() -> Self {
        Self {
            names: Arc::default(),
            buckets: (0..BUCKET_LOCKS).map(|_| Arc::default()).collect(),
            keys: (0..LOCKS).map(|_| Arc::default()).collect(),
        }
    }
}

impl KeyLocks {
    /// Locks a key.
    pub(crate) async fn lock_key(&self, bucket: u64, key: &[u8]) -> KeyGuard {
        let bucket_held = self.bucket(bucket).read_owned().await;
        let key = self.keys[slot(bucket, key)].clone().lock_owned().await;
        KeyGuard { bucket: Some(bucket_held), key: Some(key), ..KeyGuard::default() }
    }

    /// Locks two keys of a bucket.
    pub(crate) async fn lock_two_keys(&self, bucket: u64, keys: [&[u8]; 2]) -> [KeyGuard; 2] {
        let [one, other] = keys.map(|key| slot(bucket, key));
        let bucket_held = self.bucket(bucket).read_owned().await;
        let first = self.keys[one.min(other)].clone().lock_owned().await;
        let second =
            if one == other { None } else { Some(self.keys[one.max(other)].clone().lock_owned().await) };
        [
            KeyGuard { bucket: Some(bucket_held), key: Some(first), ..KeyGuard::default() },
            KeyGuard { key: second, ..KeyGuard::default() },
        ]
    }

    /// Locks keys of several buckets.
    pub(crate) async fn lock_keys(
        &self,
        keys: impl Iterator<Item = (u64, &[u8])> + Clone + Send,
    ) -> Vec<KeyGuard> {
        let buckets: BTreeSet<u64> = keys.clone().map(|(bucket, _)| bucket % BUCKET_LOCKS as u64).collect();
        let slots: BTreeSet<usize> = keys.map(|(bucket, key)| slot(bucket, key)).collect();
        let mut held = Vec::with_capacity(buckets.len() + slots.len());
        for bucket in buckets {
            let bucket = Some(self.bucket(bucket).read_owned().await);
            held.push(KeyGuard { bucket, ..KeyGuard::default() });
        }
        for slot in slots {
            let key = Some(self.keys[slot].clone().lock_owned().await);
            held.push(KeyGuard { key, ..KeyGuard::default() });
        }
        held
    }

    /// Locks the names of buckets, their versioning states, and the drive's pool membership.
    pub(crate) async fn lock_names(&self) -> KeyGuard {
        KeyGuard { key: Some(self.names.clone().lock_owned().await), ..KeyGuard::default() }
    }

    /// Locks all keys of a bucket. Waits for the holders of its key locks.
    pub(crate) async fn lock_bucket(&self, bucket: u64) -> KeyGuard {
        KeyGuard { whole: Some(self.bucket(bucket).write_owned().await), ..KeyGuard::default() }
    }

    /// Returns the lock of a bucket, which others may share.
    fn bucket(&self, bucket: u64) -> Arc<RwLock<()>> {
        self.buckets[(bucket % BUCKET_LOCKS as u64) as usize].clone()
    }
}

/// Returns the index of the lock of a key, which other keys may share.
fn slot(bucket: u64, key: &[u8]) -> usize {
    let mut hasher = DefaultHasher::new();
    (bucket, key).hash(&mut hasher);
    (hasher.finish() % LOCKS as u64) as usize
}
