//! One change of a key at a time, and none of a bucket that is being removed.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// So many keys can be changed at the same time, if they do not share a lock by chance.
const LOCKS: usize = 1024;

/// So many buckets can be removed without waiting for changes of another.
const BUCKET_LOCKS: usize = 64;

/// Locks of keys and buckets, fewer than those. Taken in this order: names, buckets, keys; of several buckets or keys the lesser first.
#[derive(Debug)]
pub(crate) struct KeyLocks {
    names: Arc<Mutex<()>>,
    buckets: Vec<Arc<RwLock<()>>>,
    keys: Vec<Arc<Mutex<()>>>,
}

/// What is held until a change is committed, be it waited for or not.
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
    /// Waits until nobody else changes the key.
    pub(crate) async fn hold(&self, bucket: u64, key: &[u8]) -> Held {
        let bucket_held = self.bucket(bucket).read_owned().await;
        let key = self.keys[place(bucket, key)].clone().lock_owned().await;
        Held { bucket: Some(bucket_held), key: Some(key), ..Held::default() }
    }

    /// Waits until nobody else changes one of two keys.
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

    /// Waits until nobody else changes one of these keys of buckets.
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

    /// Waits until nobody else makes or removes a bucket, or changes what one is.
    pub(crate) async fn hold_names(&self) -> Held {
        Held { key: Some(self.names.clone().lock_owned().await), ..Held::default() }
    }

    /// Waits until nobody changes a key of the bucket.
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
