//! Keys under way: who writes a key has a stay at its home, and all who do at the same time have one home.
//!
//! Whoever is first looks where the key is, and the others take that. The look comes when the stay has begun, so who has ended one before
//! has made its change, and that is seen.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::ObjectKey;
use tokio::sync::OnceCell;

/// A bucket's name and a key in it.
type Named = (Arc<str>, ObjectKey);

/// The stays there are.
#[derive(Debug, Default)]
pub(super) struct Stays(Arc<Mutex<HashMap<Named, Settled>>>);

/// What all who write a key share.
#[derive(Debug, Default)]
struct Settled {
    count: usize,
    home: Arc<OnceCell<usize>>,
}

/// A stay, until it is dropped.
#[derive(Debug)]
pub(super) struct Stay {
    stays: Arc<Mutex<HashMap<Named, Settled>>>,
    named: Named,
    home: Arc<OnceCell<usize>>,
}

impl Stays {
    /// Begins a stay; where, it may not be known yet.
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
    /// The key's home, as who came first finds it.
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
