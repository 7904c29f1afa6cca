//! Placement locks: while a key is being written its home does not change, and concurrent writers of a new key get the same home.
//!
//! The first writer looks up the home, and the others use the result. The lookup follows the acquisition of the lock. So if an earlier
//! lock of the key was released before, its change was made before and the lookup sees it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::ObjectKey;
use tokio::sync::OnceCell;

/// A bucket's name and a key in it.
type Named = (Arc<str>, ObjectKey);

/// All placement locks of a pool.
#[derive(Debug, Default)]
pub(super) struct Stays(Arc<Mutex<HashMap<Named, Settled>>>);

/// The state shared by all locks of a key.
#[derive(Debug, Default)]
struct Settled {
    count: usize,
    home: Arc<OnceCell<usize>>,
}

/// A lock on a key's placement, until it is dropped. Several writers may hold locks of the same key.
#[derive(Debug)]
pub(super) struct Stay {
    stays: Arc<Mutex<HashMap<Named, Settled>>>,
    named: Named,
    home: Arc<OnceCell<usize>>,
}

impl Stays {
    /// Acquires a lock. The home may not be known yet.
    pub(super) fn begin(&self, bucket: &Arc<str>, key: &ObjectKey) -> Stay {
        let named = (bucket.clone(), key.clone());
        let mut stays = lock(&self.0);
        let settled = stays.entry(named.clone()).or_default();
        settled.count += 1;
        let home = settled.home.clone();
        Stay { stays: self.0.clone(), named, home }
    }
}

impl Stay {
    /// Returns the key's home. The first caller determines it by `find`.
    pub(super) async fn home(
        &self,
        find: impl Future<Output = store::Result<usize>> + Send,
    ) -> store::Result<usize> {
        self.home.get_or_try_init(|| find).await.copied()
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let mut stays = lock(&self.stays);
        let Some(settled) = stays.get_mut(&self.named) else { return };
        settled.count -= 1;
        if settled.count == 0 {
            stays.remove(&self.named);
        }
    }
}

fn lock(stays: &Mutex<HashMap<Named, Settled>>) -> MutexGuard<'_, HashMap<Named, Settled>> {
    stays.lock().unwrap_or_else(PoisonError::into_inner)
}
