//! Placement locks: while a key is being written its home does not change, and concurrent writers of a new key get the same home.
//!
//! The first writer looks up the home, and the others use the result. The lookup follows the acquisition of the lock. So if an earlier
//! lock of the key was released before, its change was made before and the lookup sees it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::ObjectKey;
use tokio::sync::OnceCell;

/// A bucket's name and a key in it.
type BucketKey = (Arc<str>, ObjectKey);

/// All placement locks of a pool.
#[derive(Debug, Default)]
pub(super) struct PlacementLocks(Arc<Mutex<HashMap<BucketKey, SharedHome>>>);

/// The state shared by all locks of a key.
#[derive(Debug, Default)]
struct SharedHome {
    /// The number of locks of the key.
    count: usize,
    /// The number of the home drive of the key, once a writer has determined it.
    home: Arc<OnceCell<usize>>,
}

/// A lock on a key's placement, until it is dropped. Several writers may hold locks of the same key.
#[derive(Debug)]
pub(super) struct PlacementLock {
    locks: Arc<Mutex<HashMap<BucketKey, SharedHome>>>,
    bucket_key: BucketKey,
    home: Arc<OnceCell<usize>>,
}

impl PlacementLocks {
    /// Acquires a lock. The home may not be known yet.
    pub(super) fn acquire(&self, bucket: &Arc<str>, key: &ObjectKey) -> PlacementLock {
        let bucket_key = (bucket.clone(), key.clone());
        let mut locks = lock(&self.0);
        let shared = locks.entry(bucket_key.clone()).or_default();
        shared.count += 1;
        let home = shared.home.clone();
        PlacementLock { locks: self.0.clone(), bucket_key, home }
    }
}

impl PlacementLock {
    /// Returns the number of the key's home drive. The first caller determines it by `find`; if that fails, the next
    /// one does.
    pub(super) async fn home(
        &self,
        find: impl Future<Output = store::Result<usize>> + Send,
    ) -> store::Result<usize> {
        self.home.get_or_try_init(|| find).await.copied()
    }
}

impl Drop for PlacementLock {
    fn drop(&mut self) {
        let mut locks = lock(&self.locks);
        let Some(shared) = locks.get_mut(&self.bucket_key) else { return };
        shared.count -= 1;
        if shared.count == 0 {
            locks.remove(&self.bucket_key);
        }
    }
}

fn lock(locks: &Mutex<HashMap<BucketKey, SharedHome>>) -> MutexGuard<'_, HashMap<BucketKey, SharedHome>> {
    locks.lock().unwrap_or_else(PoisonError::into_inner)
}
