//! One directory of a view: the objects and directories that its names lead to.
//!
//! Invariants: every object has exactly one name. Of several objects with one plain name (namesakes), the least has
//! the plain name, unless a directory has it, or another object has it as its longer name; the others have longer
//! names. A name that changed, so that it leads to another entry, to a changed object or to nothing, is in `stale`
//! until it is taken.

use super::naming::{self, EntryName};
use super::path_index::DirectoryId;
use crate::{ObjectName, Shown};
use std::collections::btree_map::Entry as MapEntry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    slots: BTreeMap<EntryName, Slot>,
    /// Namesakes and their names, by plain name; except where a single object has its plain name.
    namesakes: HashMap<EntryName, BTreeMap<ObjectName, EntryName>>,
}

/// Entry of a name.
#[derive(Debug, Clone)]
pub(super) enum Slot {
    Directory(DirectoryId),
    File(Arc<Shown>),
}

impl Directory {
    pub(super) fn within(parent: DirectoryId, name: EntryName) -> Self {
        Self { parent: Some((parent, name)), ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Finds an entry by its name, or by the longer name that the object would have if it had a namesake.
    pub(super) fn find(&self, name: &[u8]) -> Option<&Slot> {
        if let Some(slot) = self.slots.get(name) {
            return Some(slot);
        }
        let plain = naming::plain_name_of_longer(name)?;
        let slot = self.slots.get(&*plain)?;
        let is_longer_name = match slot {
            Slot::File(shown) => {
                naming::longer_names(&shown.name, &plain).take(2).any(|longer| *longer == *name)
            }
            Slot::Directory(_) => false,
        };
        if is_longer_name {
            self.used_longer_name.store(true, Ordering::Relaxed);
        }
        is_longer_name.then_some(slot)
    }

    /// Returns the directory of a name.
    pub(super) fn directory(&self, name: &[u8]) -> Option<DirectoryId> {
        match self.slots.get(name)? {
            Slot::Directory(id) => Some(*id),
            Slot::File(_) => None,
        }
    }

    /// Returns the entries after a name, in the order of names.
    pub(super) fn after(&self, after: Option<&[u8]>) -> impl Iterator<Item = (&EntryName, &Slot)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.slots.range::<[u8], _>((from, Bound::Unbounded))
    }

    /// Takes up to `limit` stale names. Returns them, and whether there are more.
    pub(super) fn take_stale(&mut self, limit: usize) -> (Vec<EntryName>, bool) {
        let taken = std::iter::from_fn(|| self.stale.pop_first()).take(limit).collect();
        (taken, !self.stale.is_empty())
    }

    /// Adds an object, or replaces its known state.
    pub(super) fn put(&mut self, plain: &EntryName, shown: Arc<Shown>) {
        if let Some(name) = self.name_of(plain, &shown.name) {
            self.set(name, Slot::File(shown));
        } else if self.namesakes.contains_key(plain) || self.slots.contains_key(plain) {
            self.form_group(plain);
            self.give_longer_name(plain, shown);
            self.promote(plain);
        } else {
            self.set(plain.clone(), Slot::File(shown));
        }
    }

    /// Removes an object.
    pub(super) fn remove(&mut self, plain: &EntryName, object: &ObjectName) {
        let Some(name) = self.name_of(plain, object) else { return };
        self.clear(&name);
        if let Some(group) = self.namesakes.get_mut(plain) {
            group.remove(object);
            if group.is_empty() {
                self.namesakes.remove(plain);
            }
        }
        self.promote(&name);
        self.promote(plain);
    }

    /// Adds a directory. It always gets its name; an object that has the name gets a longer one.
    pub(super) fn put_directory(&mut self, name: &EntryName, id: DirectoryId) {
        let before = self.set(name.clone(), Slot::Directory(id));
        if let Some(Slot::File(shown)) = before
            && let Some(plain) = naming::plain_name(&shown.name)
        {
            if *plain == **name {
                self.namesakes.entry(plain.clone()).or_default();
            }
            self.give_longer_name(&plain, shown);
        }
    }

    pub(super) fn remove_directory(&mut self, name: &EntryName) {
        self.clear(name);
        self.promote(name);
    }

    /// Makes a name lead to an entry. Returns the previous entry.
    fn set(&mut self, name: EntryName, slot: Slot) -> Option<Slot> {
        match self.slots.entry(name) {
            MapEntry::Vacant(vacant) => {
                vacant.insert(slot);
                None
            }
            MapEntry::Occupied(mut occupied) => {
                let name = occupied.key().clone();
                let before = occupied.insert(slot);
                self.note_stale(name, &before);
                Some(before)
            }
        }
    }

    /// Removes a name. Returns its entry.
    fn clear(&mut self, name: &EntryName) -> Option<Slot> {
        let before = self.slots.remove(name)?;
        self.note_stale(name.clone(), &before);
        Some(before)
    }

    fn note_stale(&mut self, name: EntryName, before: &Slot) {
        if let Slot::File(shown) = before
            && self.used_longer_name.load(Ordering::Relaxed)
        {
            self.stale.extend(naming::longer_names(&shown.name, &name).take(2));
        }
        self.stale.insert(name);
    }

    /// Returns the name of an object, if it is in the directory.
    fn name_of(&self, plain: &EntryName, object: &ObjectName) -> Option<EntryName> {
        if let Some(group) = self.namesakes.get(plain) {
            return group.get(object).cloned();
        }
        match self.slots.get(plain)? {
            Slot::File(shown) if shown.name == *object => Some(plain.clone()),
            _ => None,
        }
    }

    /// Starts a group of namesakes with the object that has the plain name, if any.
    fn form_group(&mut self, plain: &EntryName) {
        if self.namesakes.contains_key(plain) {
            return;
        }
        let holder = match self.slots.get(plain) {
            Some(Slot::File(shown)) if naming::plain_name(&shown.name).as_ref() == Some(plain) => Some(shown),
            _ => None,
        };
        let group = holder.map(|shown| (shown.name.clone(), plain.clone())).into_iter().collect();
        self.namesakes.insert(plain.clone(), group);
    }

    /// Gives an object the first longer name that is free.
    fn give_longer_name(&mut self, plain: &EntryName, shown: Arc<Shown>) {
        let free = naming::longer_names(&shown.name, plain).find(|name| !self.slots.contains_key(name));
        let Some(name) = free else { unreachable!("the longer names of an object are unlimited") };
        self.namesakes.entry(plain.clone()).or_default().insert(shown.name.clone(), name.clone());
        self.set(name, Slot::File(shown));
    }

    /// Gives a plain name to the least object of its group, if no other entry has it.
    fn promote(&mut self, plain: &EntryName) {
        let Some(group) = self.namesakes.get(plain) else { return };
        let Some((least, name)) = group.first_key_value() else { return };
        let holder = match self.slots.get(plain) {
            Some(Slot::File(shown)) if group.contains_key(&shown.name) => Some(shown.clone()),
            Some(_) => return,
            None => None,
        };
        if name != plain {
            let (least, name) = (least.clone(), name.clone());
            if let Some(slot) = self.clear(&name) {
                self.set(plain.clone(), slot);
            }
            if let Some(group) = self.namesakes.get_mut(plain) {
                group.insert(least, plain.clone());
            }
            if let Some(holder) = holder {
                self.give_longer_name(plain, holder);
            }
        }
        if self.namesakes.get(plain).is_some_and(|group| group.len() == 1) {
            self.namesakes.remove(plain);
        }
    }
}
