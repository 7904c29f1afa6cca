//! Keys under way: who writes a key claims it, and all who do at the same time have one home.
//!
//! Whoever is first looks where the key is, and the others take that. The look comes after the claim, so who has let go of one before
//! has made its change, and that is seen.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::ObjectKey;
use tokio::sync::OnceCell;

/// A bucket's name and a key in it.
type Named = (Arc<str>, ObjectKey);

/// The claims there are.
#[derive(Debug, Default)]
pub(super) struct Claims(Arc<Mutex<HashMap<Named, Claimed>>>);

#[derive(Debug, Default)]
struct Claimed {
    count: usize,
    home: Arc<OnceCell<usize>>,
}

/// A claim, until it is dropped.
#[derive(Debug)]
pub(super) struct Claim {
    claims: Arc<Mutex<HashMap<Named, Claimed>>>,
    named: Named,
    home: Arc<OnceCell<usize>>,
}

impl Claims {
    pub(super) fn claim(&self, bucket: &Arc<str>, key: &ObjectKey) -> Claim {
        let named = (bucket.clone(), key.clone());
        let mut claims = lock(&self.0);
        let claimed = claims.entry(named.clone()).or_default();
        claimed.count += 1;
        let home = claimed.home.clone();
        Claim { claims: self.0.clone(), named, home }
    }
}

impl Claim {
    /// The key's home, as who claimed it first finds it.
    pub(super) async fn home(
        &self,
        find: impl Future<Output = store::Result<usize>> + Send,
    ) -> store::Result<usize> {
        self.home.get_or_try_init(|| find).await.copied()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claims = lock(&self.claims);
        let Some(claimed) = claims.get_mut(&self.named) else { return };
        claimed.count -= 1;
        if claimed.count == 0 {
            claims.remove(&self.named);
        }
    }
}

fn lock(claims: &Mutex<HashMap<Named, Claimed>>) -> MutexGuard<'_, HashMap<Named, Claimed>> {
    claims.lock().unwrap_or_else(PoisonError::into_inner)
}
