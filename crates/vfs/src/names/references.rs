//! What the kernel holds: which inodes it knows, and which bytes of them it may have in its page cache.

use meta::Ino;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::ETag;

use crate::attr::Attr;

/// Counts of kernel references by inode.
#[derive(Debug, Default)]
pub(crate) struct References(Mutex<BTreeMap<Ino, Reference>>);

#[derive(Debug, Default)]
struct Reference {
    count: u64,
    /// The bytes the kernel's page cache may hold; `None`: it may hold any.
    cached: Option<ETag>,
    /// Handles of two versions are open, or were when the page cache was last dropped: it may hold pages of both.
    is_mixed: bool,
    /// What a directory was that is removed and still open.
    removed: Option<Box<Attr>>,
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

    /// Notes what a directory was that is removed now, while the kernel still holds it.
    pub(crate) fn note_removed(&self, directory: Attr) {
        if let Some(reference) = self.lock().get_mut(&directory.ino) {
            reference.removed = Some(Box::new(directory));
        }
    }

    /// What a removed directory was that the kernel still holds.
    pub(crate) fn removed_directory(&self, ino: Ino) -> Option<Attr> {
        self.lock().get(&ino).and_then(|reference| reference.removed.as_deref().cloned())
    }

    /// Does something while no reference comes or goes; it is told how to ask which inodes are held.
    pub(crate) fn while_frozen<T>(&self, work: impl FnOnce(&dyn Fn(Ino) -> bool) -> T) -> T {
        let references = self.lock();
        work(&|ino| references.contains_key(&ino))
    }

    /// Whether the page cache holds bytes of `etag` and no others.
    pub(crate) fn holds(&self, ino: Ino, etag: Option<&ETag>) -> bool {
        let references = self.lock();
        let cached = references.get(&ino).and_then(|reference| reference.cached.as_ref());
        etag.is_some() && cached == etag
    }

    /// Notes that the page cache now holds bytes of `etag`, unless it may hold others too.
    pub(crate) fn set_cached(&self, ino: Ino, etag: Option<&ETag>) {
        if let Some(reference) = self.lock().get_mut(&ino)
            && !reference.is_mixed
        {
            reference.cached = etag.cloned();
        }
    }

    /// The kernel drops its pages as it opens the file. Returns whether they were of one version, which is another one now: the kernel may
    /// believe that version's length.
    pub(crate) fn drop_cached(&self, ino: Ino) -> bool {
        self.take_cached(ino, false)
    }

    /// A handle past the page cache may be mapped, which brings its bytes in beside those of another version.
    pub(crate) fn mark_mixed(&self, ino: Ino) {
        self.take_cached(ino, true);
    }

    fn take_cached(&self, ino: Ino, is_mixed: bool) -> bool {
        let mut references = self.lock();
        let Some(reference) = references.get_mut(&ino) else { return false };
        reference.is_mixed = is_mixed;
        reference.cached.take().is_some()
    }

    /// An object has another tag now, for the same bytes.
    pub(crate) fn change_etag(&self, ino: Ino, before: &ETag, now: &ETag) {
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
