//! Locks that admit one writer per key.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of locks: enough that writers of different keys rarely share one.
const SHARDS: usize = 64;

/// Mutexes selected by the hash of a path. A thread holds at most one, for a few system calls.
pub(super) struct PathLocks([Mutex<()>; SHARDS]);

impl PathLocks {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| Mutex::new(())))
    }

    /// Locks a path.
    pub(super) fn lock(&self, path: &[u8]) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        self.0[hasher.finish() as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
