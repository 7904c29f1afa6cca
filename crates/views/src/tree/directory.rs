//! One directory of a view: which name leads to which object.
//!
//! Invariants: every object has exactly one name; of several with one plain name the least has it, unless a directory or another's
//! longer name is called so; the others have longer names. A name that led somewhere and does so no more, or leads elsewhere, or
//! to an object that changed, is noted until somebody takes note of it.

use super::naming::{self, EntryName};
use super::path_index::DirectoryId;
use crate::{ObjectName, Shown};
use std::collections::btree_map::Entry as Place;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Default)]
pub(super) struct Directory {
    /// Where it lies, and as what; the top lies nowhere.
    pub(super) parent: Option<(DirectoryId, EntryName)>,
    /// Somebody made it here, so it stays when it is empty.
    pub(super) is_made: bool,
    /// Another one whenever something changes in it.
    pub(super) version: u64,
    /// Names that do not stand any more for what they stood for.
    stale: BTreeSet<EntryName>,
    /// Somebody came to an object by its longer name while it had the plain one.
    is_called_longer: AtomicBool,
    slots: BTreeMap<EntryName, Slot>,
    /// The objects of one plain name and what they are called, where that is not simply one object and its plain name.
    namesakes: HashMap<EntryName, BTreeMap<ObjectName, EntryName>>,
}

/// What a name leads to.
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

    /// What is called so, or was before a namesake went.
    pub(super) fn find(&self, name: &[u8]) -> Option<&Slot> {
        if let Some(slot) = self.slots.get(name) {
            return Some(slot);
        }
        let plain = naming::shortened(name)?;
        let slot = self.slots.get(&*plain)?;
        let is_it = match slot {
            Slot::File(shown) => naming::longer(&shown.name, &plain).take(2).any(|longer| *longer == *name),
            Slot::Directory(_) => false,
        };
        if is_it {
            self.is_called_longer.store(true, Ordering::Relaxed);
        }
        is_it.then_some(slot)
    }

    /// The directory that is called so.
    pub(super) fn directory(&self, name: &[u8]) -> Option<DirectoryId> {
        match self.slots.get(name)? {
            Slot::Directory(id) => Some(*id),
            Slot::File(_) => None,
        }
    }

    /// In the order of names, after one.
    pub(super) fn after(&self, after: Option<&[u8]>) -> impl Iterator<Item = (&EntryName, &Slot)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.slots.range::<[u8], _>((from, Bound::Unbounded))
    }

    /// Some of the names that do not stand any more for what they stood for, once; and whether there are more.
    pub(super) fn take_stale(&mut self, limit: usize) -> (Vec<EntryName>, bool) {
        let taken = std::iter::from_fn(|| self.stale.pop_first()).take(limit).collect();
        (taken, !self.stale.is_empty())
    }

    /// Takes an object in, or what is newly known of it.
    pub(super) fn put(&mut self, plain: &EntryName, shown: Arc<Shown>) {
        if let Some(name) = self.name_of(plain, &shown.name) {
            self.set(name, Slot::File(shown));
        } else if self.namesakes.contains_key(plain) || self.slots.contains_key(plain) {
            self.group(plain);
            self.name_longer(plain, shown);
            self.promote(plain);
        } else {
            self.set(plain.clone(), Slot::File(shown));
        }
    }

    /// Lets an object go.
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

    /// A directory has its name whatever else is called so.
    pub(super) fn put_directory(&mut self, name: &EntryName, id: DirectoryId) {
        let before = self.set(name.clone(), Slot::Directory(id));
        if let Some(Slot::File(shown)) = before
            && let Some(plain) = naming::plain(&shown.name)
        {
            if *plain == **name {
                self.namesakes.entry(plain.clone()).or_default();
            }
            self.name_longer(&plain, shown);
        }
    }

    pub(super) fn remove_directory(&mut self, name: &EntryName) {
        self.clear(name);
        self.promote(name);
    }

    /// Lets a name lead somewhere; returns to what it led.
    fn set(&mut self, name: EntryName, slot: Slot) -> Option<Slot> {
        match self.slots.entry(name) {
            Place::Vacant(vacant) => {
                vacant.insert(slot);
                None
            }
            Place::Occupied(mut occupied) => {
                let name = occupied.key().clone();
                let before = occupied.insert(slot);
                self.note_stale(name, &before);
                Some(before)
            }
        }
    }

    /// Lets a name lead nowhere; returns to what it led.
    fn clear(&mut self, name: &EntryName) -> Option<Slot> {
        let before = self.slots.remove(name)?;
        self.note_stale(name.clone(), &before);
        Some(before)
    }

    fn note_stale(&mut self, name: EntryName, before: &Slot) {
        if let Slot::File(shown) = before
            && self.is_called_longer.load(Ordering::Relaxed)
        {
            self.stale.extend(naming::longer(&shown.name, &name).take(2));
        }
        self.stale.insert(name);
    }

    /// What an object that is here is called.
    fn name_of(&self, plain: &EntryName, object: &ObjectName) -> Option<EntryName> {
        if let Some(group) = self.namesakes.get(plain) {
            return group.get(object).cloned();
        }
        match self.slots.get(plain)? {
            Slot::File(shown) if shown.name == *object => Some(plain.clone()),
            _ => None,
        }
    }

    /// Makes namesakes of whatever has the plain name.
    fn group(&mut self, plain: &EntryName) {
        if self.namesakes.contains_key(plain) {
            return;
        }
        let holder = match self.slots.get(plain) {
            Some(Slot::File(shown)) if naming::plain(&shown.name).as_ref() == Some(plain) => Some(shown),
            _ => None,
        };
        let group = holder.map(|shown| (shown.name.clone(), plain.clone())).into_iter().collect();
        self.namesakes.insert(plain.clone(), group);
    }

    /// Calls an object by the first longer name that is free.
    fn name_longer(&mut self, plain: &EntryName, shown: Arc<Shown>) {
        let free = naming::longer(&shown.name, plain).find(|name| !self.slots.contains_key(name));
        let Some(name) = free else { unreachable!("there are more names than objects") };
        self.namesakes.entry(plain.clone()).or_default().insert(shown.name.clone(), name.clone());
        self.set(name, Slot::File(shown));
    }

    /// Gives a plain name to the least of those that want it.
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
                self.name_longer(plain, holder);
            }
        }
        if self.namesakes.get(plain).is_some_and(|group| group.len() == 1) {
            self.namesakes.remove(plain);
        }
    }
}
