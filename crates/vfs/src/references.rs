//! What the kernel holds: which inodes it knows, and which bytes of them it may have in its page cache.

use meta::Ino;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::ETag;

/// Counts of kernel references by inode.
#[derive(Debug, Default)]
pub(crate) struct References(Mutex<BTreeMap<Ino, Reference>>);

#[derive(Debug, Default)]
struct Reference {
    count: u64,
    /// The bytes the kernel's page cache may hold.
    cached: Option<ETag>,
}

impl References {
    pub(crate) fn add(&self, ino: Ino) {
        self.lock().entry(ino).or_default().count += 1;
    }

    /// Takes `count` references away; true if none is left.
    pub(crate) fn forget(&self, ino: Ino, count: u64) -> bool {
        let mut references = self.lock();
        let Some(reference) = references.get_mut(&ino) else { return true };
        reference.count = reference.count.saturating_sub(count);
        let is_gone = reference.count == 0;
        if is_gone {
            references.remove(&ino);
        }
        is_gone
    }

    /// Does something while no reference comes or goes; it is told how to ask which inodes are held.
    pub(crate) fn frozen<T>(&self, work: impl FnOnce(&dyn Fn(Ino) -> bool) -> T) -> T {
        let references = self.lock();
        work(&|ino| references.contains_key(&ino))
    }

    /// Notes that the page cache now holds bytes of `etag`; true if that is what it held before.
    pub(crate) fn caches(&self, ino: Ino, etag: Option<&ETag>) -> bool {
        let mut references = self.lock();
        let Some(reference) = references.get_mut(&ino) else { return false };
        let same = etag.is_some() && reference.cached.as_ref() == etag;
        reference.cached = etag.cloned();
        same
    }

    /// An object has another tag now, for the same bytes.
    pub(crate) fn has_tag(&self, ino: Ino, before: &ETag, now: &ETag) {
        let mut references = self.lock();
        let cached = references.get_mut(&ino).and_then(|reference| reference.cached.as_mut());
        if let Some(cached) = cached.filter(|cached| **cached == *before) {
            *cached = now.clone();
        }
    }

    /// The next `limit` inodes that the kernel holds, by their numbers.
    pub(crate) fn after(&self, ino: Option<Ino>, limit: usize) -> Vec<Ino> {
        let from = ino.map_or(Bound::Unbounded, Bound::Excluded);
        self.lock().range((from, Bound::Unbounded)).take(limit).map(|(ino, _)| *ino).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Ino, Reference>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
