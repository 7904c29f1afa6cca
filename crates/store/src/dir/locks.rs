//! One writer per key at a time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Enough that writers of different keys rarely meet.
const SHARDS: usize = 64;

/// Locks by path, shared by hash. Held for a few system calls, never two at once by one thread.
pub(super) struct PathLocks([Mutex<()>; SHARDS]);

impl PathLocks {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| Mutex::new(())))
    }

    /// Waits until nobody else holds the path.
    pub(super) fn hold(&self, path: &[u8]) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        self.0[hasher.finish() as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
