//! State of the kernel: the inodes that it references, and the versions of file data that its page cache may hold.

use meta::{Ino, Name};
use std::collections::BTreeMap;
use std::mem;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::ETag;

use crate::attr::Attr;

/// Kernel references by inode.
#[derive(Debug, Default)]
pub(crate) struct References(Mutex<BTreeMap<Ino, Reference>>);

#[derive(Debug, Default)]
struct Reference {
    count: u64,
    /// The version of the data in the kernel's page cache; `None` if it may hold any version.
    cached: Option<ETag>,
    /// Whether the page cache may hold pages of two versions, because handles of both are open, or were when it was last
    /// dropped.
    is_mixed: bool,
    /// Attributes of a removed directory that is still open.
    removed: Option<Box<Attr>>,
    /// Names that led to the inode, and that front ends have not been told of.
    lost_names: Vec<DentryKey>,
}

/// Directory and name.
type DentryKey = (Ino, Name);

impl References {
    pub(crate) fn add(&self, ino: Ino) {
        self.lock().entry(ino).or_default().count += 1;
    }

    /// Removes `count` references. Returns true if none is left.
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

    /// Records the attributes of a directory that is being removed while the kernel still references it.
    pub(crate) fn note_removed(&self, directory: Attr) {
        if let Some(reference) = self.lock().get_mut(&directory.ino) {
            reference.removed = Some(Box::new(directory));
        }
    }

    /// Records that a name no longer leads to an inode, if the kernel references the inode.
    pub(crate) fn note_lost_name(&self, ino: Ino, parent: Ino, name: &Name) {
        if let Some(reference) = self.lock().get_mut(&ino) {
            let names = &mut reference.lost_names;
            if !names.iter().any(|(dir, known)| (*dir, known) == (parent, name)) {
                names.push((parent, name.clone()));
            }
        }
    }

    /// Removes a name of which front ends have been told.
    pub(crate) fn forget_lost_name(&self, ino: Ino, parent: Ino, name: &Name) {
        if let Some(reference) = self.lock().get_mut(&ino) {
            reference.lost_names.retain(|(dir, known)| (*dir, known) != (parent, name));
        }
    }

    /// Takes the names that no longer lead to an inode, and that front ends have not been told of.
    pub(crate) fn take_lost_names(&self, ino: Ino) -> Vec<DentryKey> {
        self.lock().get_mut(&ino).map(|reference| mem::take(&mut reference.lost_names)).unwrap_or_default()
    }

    /// Returns the attributes of a removed directory that the kernel still references.
    pub(crate) fn removed_directory(&self, ino: Ino) -> Option<Attr> {
        self.lock().get(&ino).and_then(|reference| reference.removed.as_deref().cloned())
    }

    /// Runs `work` while no reference can be added or removed. `work` gets a function that returns whether an inode is
    /// referenced.
    pub(crate) fn while_frozen<T>(&self, work: impl FnOnce(&dyn Fn(Ino) -> bool) -> T) -> T {
        let references = self.lock();
        work(&|ino| references.contains_key(&ino))
    }

    /// Returns whether the page cache holds only data of this version.
    pub(crate) fn holds(&self, ino: Ino, etag: Option<&ETag>) -> bool {
        let references = self.lock();
        let cached = references.get(&ino).and_then(|reference| reference.cached.as_ref());
        etag.is_some() && cached == etag
    }

    /// Records that the page cache holds data of this version, unless it may hold other versions too.
    pub(crate) fn set_cached(&self, ino: Ino, etag: Option<&ETag>) {
        if let Some(reference) = self.lock().get_mut(&ino)
            && !reference.is_mixed
        {
            reference.cached = etag.cloned();
        }
    }

    /// Records that the kernel drops its pages because it opens the file. Returns whether the pages were of one version. The
    /// file has another version now, and the kernel may use the old version's length.
    pub(crate) fn drop_cached(&self, ino: Ino) -> bool {
        self.take_cached(ino, false)
    }

    /// Records that the page cache may mix versions: a handle that bypasses it may be mapped, which adds pages of its version.
    pub(crate) fn mark_mixed(&self, ino: Ino) {
        self.take_cached(ino, true);
    }

    fn take_cached(&self, ino: Ino, is_mixed: bool) -> bool {
        let mut references = self.lock();
        let Some(reference) = references.get_mut(&ino) else { return false };
        reference.is_mixed = is_mixed;
        reference.cached.take().is_some()
    }

    /// Records that an object has another etag for the same bytes.
    pub(crate) fn change_etag(&self, ino: Ino, before: &ETag, now: &ETag) {
        let mut references = self.lock();
        let cached = references.get_mut(&ino).and_then(|reference| reference.cached.as_mut());
        if let Some(cached) = cached.filter(|cached| **cached == *before) {
            *cached = now.clone();
        }
    }

    /// Returns up to `limit` referenced inodes after `ino`, by number.
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
