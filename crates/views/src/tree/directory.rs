//! One directory of a view: the objects and directories that its names lead to.
//!
//! Invariants: every object has exactly one name, and no name leads to two entries. Of several objects with one plain
//! name (namesakes), the least by bucket and key has the plain name, unless a directory has it, or another object has
//! it as its longer name; the others have longer names. A name that changed, so that it leads to another entry, to a
//! changed object or to nothing, is in `stale` until it is taken.

use super::naming::{self, EntryName};
use super::object_slots::{DirectoryId, ObjectSlots};
use super::sorted_slots::SortedSlots;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A directory of a view.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// Parent directory, and the name in it; `None` for the top directory.
    pub(super) parent: Option<(DirectoryId, EntryName)>,
    /// Whether this client made the directory, so that it stays while it is empty.
    pub(super) is_made: bool,
    /// Version; changes with every change in the directory.
    pub(super) version: u64,
    /// Names that do not lead to what they led to when they were last taken.
    stale: BTreeSet<EntryName>,
    /// Whether a lookup found an object by its longer name while it had the plain one.
    used_longer_name: AtomicBool,
    directories: BTreeMap<EntryName, DirectoryId>,
    /// Slots of the objects, by name.
    files: SortedSlots,
    /// Slots of namesakes, by plain name, then by object; except where a single object has its plain name.
    namesakes: HashMap<EntryName, SortedSlots>,
}

/// The entry to which a name of the directory leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirectoryEntry {
    Directory(DirectoryId),
    /// The slot of an object.
    File(u32),
}

impl Directory {
    pub(super) fn within(parent: DirectoryId, name: EntryName) -> Self {
        Self { parent: Some((parent, name)), ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.directories.is_empty() && self.files.is_empty()
    }

    /// Finds an entry by its name, or an object by a longer name that it would have if it had a namesake; `None` if
    /// there is none.
    pub(super) fn find(&self, name: &[u8], objects: &ObjectSlots) -> Option<DirectoryEntry> {
        if let Some(found) = self.entry(name, objects) {
            return Some(found);
        }
        let plain = naming::plain_name_of_longer(name)?;
        let slot = self.file(&plain, objects)?;
        let mut longer_names = naming::longer_names(objects.object(slot), &plain).take(2);
        let is_longer_name = longer_names.any(|longer| *longer == *name);
        if is_longer_name {
            self.used_longer_name.store(true, Ordering::Relaxed);
        }
        is_longer_name.then_some(DirectoryEntry::File(slot))
    }

    /// Returns the directory of a name; `None` if the name is free or an object's.
    pub(super) fn directory(&self, name: &[u8]) -> Option<DirectoryId> {
        self.directories.get(name).copied()
    }

    /// Returns the entries after a name, in the order of names.
    pub(super) fn after<'d>(
        &'d self,
        after: Option<&'d [u8]>,
        objects: &'d ObjectSlots,
    ) -> impl Iterator<Item = (&'d [u8], DirectoryEntry)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let directories = self.directories.range::<[u8], _>((from, Bound::Unbounded));
        let mut directories =
            directories.map(|(name, id)| (&**name, DirectoryEntry::Directory(*id))).peekable();
        let files = self.files.after(after, |slot| objects.name(slot));
        let mut files = files.map(|slot| (objects.name(slot), DirectoryEntry::File(slot))).peekable();
        std::iter::from_fn(move || match (directories.peek(), files.peek()) {
            (Some((directory, _)), Some((file, _))) if directory < file => directories.next(),
            (_, Some(_)) => files.next(),
            (_, None) => directories.next(),
        })
    }

    /// Takes up to `limit` stale names. Returns them, and whether there are more.
    pub(super) fn take_stale(&mut self, limit: usize) -> (Vec<EntryName>, bool) {
        let taken = std::iter::from_fn(|| self.stale.pop_first()).take(limit).collect();
        (taken, !self.stale.is_empty())
    }

    /// Notes that the known state of an object in the directory changed.
    pub(super) fn note_change(&mut self, slot: u32, objects: &ObjectSlots) {
        self.note_stale(objects.name(slot).into(), slot, objects);
    }

    /// Adds an object whose plain name is `plain`, and gives it a name. Namesakes may get other names.
    pub(super) fn add(&mut self, slot: u32, plain: &EntryName, objects: &mut ObjectSlots) {
        if self.namesakes.contains_key(plain) || self.entry(plain, objects).is_some() {
            self.form_group(plain, objects);
            self.add_by_longer_name(slot, plain, objects);
            self.promote(plain, objects);
        } else {
            self.add_by_name(slot, plain, objects);
        }
    }

    /// Removes an object whose plain name is `plain`. A namesake may get its name.
    pub(super) fn remove(&mut self, slot: u32, plain: &EntryName, objects: &mut ObjectSlots) {
        let name: EntryName = objects.name(slot).into();
        self.clear(slot, &name, objects);
        if let Some(group) = self.namesakes.get_mut(plain) {
            group.remove(&objects.object(slot), |slot| objects.object(slot));
            if group.is_empty() {
                self.namesakes.remove(plain);
            }
        }
        self.promote(&name, objects);
        self.promote(plain, objects);
    }

    /// Adds a directory. It always gets its name; an object that has the name gets a longer one.
    pub(super) fn add_directory(&mut self, name: &EntryName, id: DirectoryId, objects: &mut ObjectSlots) {
        let holder = self.file(name, objects);
        if let Some(slot) = holder {
            self.clear(slot, name, objects);
        }
        self.directories.insert(Arc::clone(name), id);
        if let Some(slot) = holder
            && let Some(plain) = objects.plain_name(slot)
        {
            self.leave_group(slot, &plain, objects);
            self.add_by_longer_name(slot, &plain, objects);
        }
    }

    /// Removes a directory. An object with this plain name may get it.
    pub(super) fn remove_directory(&mut self, name: &EntryName, objects: &mut ObjectSlots) {
        self.directories.remove(name);
        self.stale.insert(Arc::clone(name));
        self.promote(name, objects);
    }

    fn entry(&self, name: &[u8], objects: &ObjectSlots) -> Option<DirectoryEntry> {
        let directory = self.directory(name).map(DirectoryEntry::Directory);
        directory.or_else(|| self.file(name, objects).map(DirectoryEntry::File))
    }

    fn file(&self, name: &[u8], objects: &ObjectSlots) -> Option<u32> {
        self.files.find(&name, |slot| objects.name(slot))
    }

    /// Makes a free name lead to an object.
    fn add_by_name(&mut self, slot: u32, name: &EntryName, objects: &mut ObjectSlots) {
        objects.set_name(slot, name);
        self.files.insert(slot, |slot| objects.name(slot));
    }

    /// Removes a name, which is an object's.
    fn clear(&mut self, slot: u32, name: &EntryName, objects: &ObjectSlots) {
        let removed = self.files.remove(&&**name, |slot| objects.name(slot));
        debug_assert_eq!(removed, Some(slot), "an object is in its directory by its name");
        self.note_stale(Arc::clone(name), slot, objects);
    }

    /// Notes that a name of an object is stale, and with it the longer names by which lookups may have found the
    /// object.
    fn note_stale(&mut self, name: EntryName, slot: u32, objects: &ObjectSlots) {
        if self.used_longer_name.load(Ordering::Relaxed) {
            self.stale.extend(naming::longer_names(objects.object(slot), &name).take(2));
        }
        self.stale.insert(name);
    }

    /// Starts a group of namesakes with the object that has the plain name, if any.
    fn form_group(&mut self, plain: &EntryName, objects: &ObjectSlots) {
        if self.namesakes.contains_key(plain) {
            return;
        }
        let mut group = SortedSlots::default();
        let holder = self.file(plain, objects);
        if let Some(slot) = holder.filter(|slot| objects.plain_name(*slot).as_ref() == Some(plain)) {
            group.insert(slot, |slot| objects.object(slot));
        }
        self.namesakes.insert(Arc::clone(plain), group);
    }

    /// Removes an object from the group of its namesakes, if it is in one.
    fn leave_group(&mut self, slot: u32, plain: &EntryName, objects: &ObjectSlots) {
        if let Some(group) = self.namesakes.get_mut(plain) {
            group.remove(&objects.object(slot), |slot| objects.object(slot));
        }
    }

    /// Gives an object, which is in no group, the first longer name that is free, and adds it to its group.
    fn add_by_longer_name(&mut self, slot: u32, plain: &EntryName, objects: &mut ObjectSlots) {
        let mut names = naming::longer_names(objects.object(slot), plain);
        let free = names.find(|name| self.entry(name, objects).is_none());
        drop(names);
        let Some(name) = free else { unreachable!("the longer names of an object are unlimited") };
        let group = self.namesakes.entry(Arc::clone(plain)).or_default();
        group.insert(slot, |slot| objects.object(slot));
        self.add_by_name(slot, &name, objects);
    }

    /// Gives a plain name to the least object of its group, unless an entry outside of the group has it, and ends a
    /// group of one object that has it.
    fn promote(&mut self, plain: &EntryName, objects: &mut ObjectSlots) {
        let Some(group) = self.namesakes.get(plain) else { return };
        let Some(least) = group.first() else { return };
        let is_in_group = |slot: u32| {
            let found = group.find(&objects.object(slot), |slot| objects.object(slot));
            found.is_some()
        };
        let holder = match self.entry(plain, objects) {
            Some(DirectoryEntry::File(slot)) if is_in_group(slot) => Some(slot),
            Some(_) => return,
            None => None,
        };
        if holder != Some(least) {
            if let Some(holder) = holder {
                self.clear(holder, plain, objects);
            }
            let name: EntryName = objects.name(least).into();
            self.clear(least, &name, objects);
            self.add_by_name(least, plain, objects);
            if let Some(holder) = holder {
                self.leave_group(holder, plain, objects);
                self.add_by_longer_name(holder, plain, objects);
            }
        }
        if self.namesakes.get(plain).is_some_and(SortedSlots::is_single) {
            self.namesakes.remove(plain);
        }
    }
}
