//! Inodes whose content is being stored and not named yet, so that garbage collection spares it.

use meta::Ino;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of operations that store content for an inode, by its number.
#[derive(Debug, Default)]
pub(crate) struct StoringInodes(Mutex<HashMap<Ino, usize>>);

/// Guard of an operation that stores content for an inode.
#[derive(Debug)]
pub(crate) struct StoringGuard {
    storing: Arc<StoringInodes>,
    ino: Ino,
}

impl StoringInodes {
    /// Returns whether content is being stored for an inode.
    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.lock().contains_key(&ino)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Ino, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoringGuard {
    /// Begins an operation that stores content for an inode.
    pub(crate) fn begin(storing: &Arc<StoringInodes>, ino: Ino) -> Self {
        *storing.lock().entry(ino).or_default() += 1;
        Self { storing: storing.clone(), ino }
    }
}

impl Drop for StoringGuard {
    fn drop(&mut self) {
        let mut inodes = self.storing.lock();
        if let Some(count) = inodes.get_mut(&self.ino) {
            *count -= 1;
            if *count == 0 {
                inodes.remove(&self.ino);
            }
        }
    }
}
