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
pub(crate) struct References(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    by_ino: BTreeMap<Ino, Reference>,
    /// Number of references with details.
    detailed: usize,
}

/// A reference. Kept small, because a kernel references a million inodes.
#[derive(Debug, Default)]
struct Reference {
    /// Number of references that front ends have.
    count: u64,
    /// State that few references have.
    details: Option<Box<Details>>,
}

#[derive(Debug, Default)]
struct Details {
    /// The version of the data in the kernel's page cache; `None` if it may hold any version.
    cached: Option<ETag>,
    /// Whether the page cache may hold pages of two versions, because handles of both are open, or were when it was last
    /// dropped.
    is_mixed: bool,
    /// Attributes of a removed directory that the kernel still references.
    removed: Option<Attr>,
    /// Names that led to the inode, and that front ends have not been told of.
    lost_names: Vec<DentryKey>,
}

/// Bytes of memory of a reference in the tree, whose nodes are half full after inodes were added in ascending order.
const REFERENCE_BYTES: usize = 56;
/// Bytes of memory of the details, with an etag.
const DETAILS_BYTES: usize = size_of::<Details>() + 80;

/// Directory and name.
type DentryKey = (Ino, Name);

impl Table {
    fn details(&self, ino: Ino) -> Option<&Details> {
        self.by_ino.get(&ino)?.details.as_deref()
    }

    /// Returns the details of an inode, and adds them if it has none; `None` if it is not referenced.
    fn details_mut(&mut self, ino: Ino) -> Option<&mut Details> {
        let details = &mut self.by_ino.get_mut(&ino)?.details;
        self.detailed += usize::from(details.is_none());
        Some(details.get_or_insert_default())
    }

    /// Returns the details of an inode; `None` if it has none.
    fn known_details_mut(&mut self, ino: Ino) -> Option<&mut Details> {
        self.by_ino.get_mut(&ino)?.details.as_deref_mut()
    }

    fn remove(&mut self, ino: Ino) {
        let removed = self.by_ino.remove(&ino);
        self.detailed -= usize::from(removed.is_some_and(|reference| reference.details.is_some()));
    }
}

impl References {
    pub(crate) fn add(&self, ino: Ino) {
        self.lock().by_ino.entry(ino).or_default().count += 1;
    }

    /// Removes `count` references of an inode. Returns true if none is left.
    pub(crate) fn forget(&self, ino: Ino, count: u64) -> bool {
        let mut references = self.lock();
        let Some(reference) = references.by_ino.get_mut(&ino) else { return true };
        reference.count = reference.count.saturating_sub(count);
        let is_gone = reference.count == 0;
        if is_gone {
            references.remove(ino);
        }
        is_gone
    }

    /// Records the attributes of a directory that is being removed while the kernel still references it.
    pub(crate) fn note_removed(&self, directory: Attr) {
        if let Some(details) = self.lock().details_mut(directory.ino) {
            details.removed = Some(directory);
        }
    }

    /// Records that a name no longer leads to an inode, if the kernel references the inode.
    pub(crate) fn note_lost_name(&self, ino: Ino, parent: Ino, name: &Name) {
        if let Some(details) = self.lock().details_mut(ino) {
            let names = &mut details.lost_names;
            if !names.iter().any(|(dir, known)| (*dir, known) == (parent, name)) {
                names.push((parent, name.clone()));
            }
        }
    }

    /// Removes a name of which front ends have been told.
    pub(crate) fn forget_lost_name(&self, ino: Ino, parent: Ino, name: &Name) {
        if let Some(details) = self.lock().known_details_mut(ino) {
            details.lost_names.retain(|(dir, known)| (*dir, known) != (parent, name));
        }
    }

    /// Takes the names that no longer lead to an inode, and that front ends have not been told of.
    pub(crate) fn take_lost_names(&self, ino: Ino) -> Vec<DentryKey> {
        let mut references = self.lock();
        references
            .known_details_mut(ino)
            .map(|details| mem::take(&mut details.lost_names))
            .unwrap_or_default()
    }

    /// Returns the attributes of a removed directory that the kernel still references; `None` for any other inode.
    pub(crate) fn removed_directory(&self, ino: Ino) -> Option<Attr> {
        self.lock().details(ino).and_then(|details| details.removed.clone())
    }

    /// Runs `work` while no reference can be added or removed. `work` gets a function that returns whether an inode is
    /// referenced.
    pub(crate) fn while_frozen<T>(&self, work: impl FnOnce(&dyn Fn(Ino) -> bool) -> T) -> T {
        let references = self.lock();
        work(&|ino| references.by_ino.contains_key(&ino))
    }

    /// Returns whether the page cache holds only data of this version.
    pub(crate) fn holds(&self, ino: Ino, etag: Option<&ETag>) -> bool {
        let references = self.lock();
        let cached = references.details(ino).and_then(|details| details.cached.as_ref());
        etag.is_some() && cached == etag
    }

    /// Records that the page cache holds data of this version, unless it may hold other versions too.
    pub(crate) fn set_cached(&self, ino: Ino, etag: Option<&ETag>) {
        if let Some(details) = self.lock().details_mut(ino)
            && !details.is_mixed
        {
            details.cached = etag.cloned();
        }
    }

    /// Records that the kernel drops its pages of an inode, because it opens the file. Returns whether the pages were
    /// known to be of one version, which is then an older one, whose length the kernel may still use.
    pub(crate) fn drop_cached(&self, ino: Ino) -> bool {
        self.lock().known_details_mut(ino).is_some_and(|details| {
            details.is_mixed = false;
            details.cached.take().is_some()
        })
    }

    /// Records that the page cache may mix versions: a handle that bypasses it may be mapped, which adds pages of its version.
    pub(crate) fn mark_mixed(&self, ino: Ino) {
        if let Some(details) = self.lock().details_mut(ino) {
            details.is_mixed = true;
            details.cached = None;
        }
    }

    /// Records that an object has another etag for the same bytes.
    pub(crate) fn change_etag(&self, ino: Ino, before: &ETag, now: &ETag) {
        let mut references = self.lock();
        let cached = references.known_details_mut(ino).and_then(|details| details.cached.as_mut());
        if let Some(cached) = cached.filter(|cached| **cached == *before) {
            *cached = now.clone();
        }
    }

    /// Returns up to `limit` referenced inodes after `ino`, by number.
    pub(crate) fn after(&self, ino: Option<Ino>, limit: usize) -> Vec<Ino> {
        let from = ino.map_or(Bound::Unbounded, Bound::Excluded);
        self.lock().by_ino.range((from, Bound::Unbounded)).take(limit).map(|(ino, _)| *ino).collect()
    }

    /// Returns the number of inodes that front ends reference.
    pub(crate) fn len(&self) -> usize {
        self.lock().by_ino.len()
    }

    /// Returns the bytes of memory that the references take.
    pub(crate) fn memory_bytes(&self) -> usize {
        let references = self.lock();
        references.by_ino.len() * REFERENCE_BYTES + references.detailed * DETAILS_BYTES
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_that_of_the_references_that_are_left() {
        let references = References::default();
        (1..=100).for_each(|number| references.add(Ino(number)));
        assert_eq!(references.memory_bytes(), 100 * REFERENCE_BYTES);
        references.set_cached(Ino(7), Some(&ETag::new("a")));
        references.set_cached(Ino(7), Some(&ETag::new("b")));
        references.set_cached(Ino(200), Some(&ETag::new("a")));
        assert_eq!(references.memory_bytes(), 100 * REFERENCE_BYTES + DETAILS_BYTES);
        assert!(references.holds(Ino(7), Some(&ETag::new("b"))) && !references.drop_cached(Ino(8)));
        assert!((1..=100).all(|number| references.forget(Ino(number), 1)));
        assert_eq!((references.memory_bytes(), references.len()), (0, 0));
    }
}
