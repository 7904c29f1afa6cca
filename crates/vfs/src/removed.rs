//! Names that were removed a moment ago.
//!
//! A listing that was under way when a name was removed still shows it; it must not bring the name back.

use meta::{Ino, Name};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use store::Timestamp;

/// No listing takes longer than this, retries included.
const LISTING_MAX: Duration = Duration::from_secs(120);
/// Old entries are dropped when there are so many.
const SWEEP_AT: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Removed(Mutex<HashMap<(Ino, Name), Timestamp>>);

impl Removed {
    pub(crate) fn insert(&self, parent: Ino, name: &Name, now: Timestamp) {
        let mut removed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if removed.len() >= SWEEP_AT {
            removed.retain(|_, at| now.since(*at) < LISTING_MAX);
        }
        removed.insert((parent, name.clone()), now);
    }

    /// The name is free, but an object under its key is still to be deleted or is not a file yet: until `insert` no
    /// look at it counts.
    pub(crate) fn begin(&self, parent: Ino, name: &Name) {
        let mut removed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        removed.insert((parent, name.clone()), Timestamp(i64::MAX));
    }

    /// Whether the name was removed at or after `looked_at`.
    pub(crate) fn since(&self, parent: Ino, name: &Name, looked_at: Timestamp) -> bool {
        let removed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !removed.is_empty() && removed.get(&(parent, name.clone())).is_some_and(|at| *at >= looked_at)
    }
}
