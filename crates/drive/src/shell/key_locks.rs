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
    names: Arc<Mutex<()>>,
    buckets: Vec<Arc<RwLock<()>>>,
    keys: Vec<Arc<Mutex<()>>>,
}

/// Locks held until a change is committed, even if its caller is cancelled.
#[derive(Debug, Default)]
#[expect(dead_code, reason = "they are held, not used")]
pub(crate) struct Held {
    bucket: Option<OwnedRwLockReadGuard<()>>,
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
    pub(crate) async fn hold(&self, bucket: u64, key: &[u8]) -> Held {
        let bucket_held = self.bucket(bucket).read_owned().await;
        let key = self.keys[place(bucket, key)].clone().lock_owned().await;
        Held { bucket: Some(bucket_held), key: Some(key), ..Held::default() }
    }

    /// Locks two keys of a bucket.
    pub(crate) async fn hold_both(&self, bucket: u64, keys: [&[u8]; 2]) -> [Held; 2] {
        let [one, other] = keys.map(|key| place(bucket, key));
        let bucket_held = self.bucket(bucket).read_owned().await;
        let first = self.keys[one.min(other)].clone().lock_owned().await;
        let second =
            if one == other { None } else { Some(self.keys[one.max(other)].clone().lock_owned().await) };
        [
            Held { bucket: Some(bucket_held), key: Some(first), ..Held::default() },
            Held { key: second, ..Held::default() },
        ]
    }

    /// Locks keys of several buckets.
    pub(crate) async fn hold_all(
        &self,
        keys: impl Iterator<Item = (u64, &[u8])> + Clone + Send,
    ) -> Vec<Held> {
        let buckets: BTreeSet<u64> = keys.clone().map(|(bucket, _)| bucket % BUCKET_LOCKS as u64).collect();
        let places: BTreeSet<usize> = keys.map(|(bucket, key)| place(bucket, key)).collect();
        let mut held = Vec::with_capacity(buckets.len() + places.len());
        for bucket in buckets {
            let bucket = Some(self.bucket(bucket).read_owned().await);
            held.push(Held { bucket, ..Held::default() });
        }
        for place in places {
            let key = Some(self.keys[place].clone().lock_owned().await);
            held.push(Held { key, ..Held::default() });
        }
        held
    }

    /// Locks the set of buckets and their properties.
    pub(crate) async fn hold_names(&self) -> Held {
        Held { key: Some(self.names.clone().lock_owned().await), ..Held::default() }
    }

    /// Locks all keys of a bucket.
    pub(crate) async fn hold_whole(&self, bucket: u64) -> Held {
        Held { whole: Some(self.bucket(bucket).write_owned().await), ..Held::default() }
    }

    fn bucket(&self, bucket: u64) -> Arc<RwLock<()>> {
        self.buckets[(bucket % BUCKET_LOCKS as u64) as usize].clone()
    }
}

fn place(bucket: u64, key: &[u8]) -> usize {
    let mut hasher = DefaultHasher::new();
    (bucket, key).hash(&mut hasher);
    (hasher.finish() % LOCKS as u64) as usize
}
