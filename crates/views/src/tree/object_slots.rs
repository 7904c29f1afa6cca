//! The objects of a view, each in a numbered slot, with the directory and the name that it has in the view.
//!
//! Owns the memory of objects: 24 bytes for a slot, about ten for finding it by its object, and the record, which the handler of this
//! process shares. Refuses to know which names are taken ([`Directory`](super::directory::Directory) does).

use super::naming::{self, EntryName};
use crate::object_record::key_of;
use crate::{ObjectName, PackedObject};
use hashbrown::{HashMap, HashTable};
use std::sync::Arc;

/// Id of a directory of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DirectoryId(pub(super) u32);

/// The objects of a view.
#[derive(Debug, Default)]
pub(super) struct ObjectSlots {
    slots: Vec<Slot>,
    /// Numbers of the slots that hold no object.
    free: Vec<u32>,
    /// Numbers of the other slots, by the hash of their objects' bucket and key.
    by_object: HashTable<u32>,
    containers: Containers,
    /// Names of the objects whose name is not the last component of their key.
    names: HashMap<u32, EntryName>,
    /// Total length of the records.
    record_bytes: usize,
    /// Total length of the texts in `names`.
    name_bytes: usize,
}

#[derive(Debug)]
struct Slot {
    record: Arc<[u8]>,
    /// Index in [`Containers`].
    container: u32,
    directory: DirectoryId,
}

/// The names of containers, of which each is kept once.
#[derive(Debug, Default)]
struct Containers {
    names: Vec<Arc<str>>,
    indexes: HashMap<Arc<str>, u32>,
}

/// Bytes that an allocation takes besides its content: the allocator's, and the counts of an `Arc`.
const ALLOCATION_OVERHEAD: usize = 32;

impl ObjectSlots {
    /// Returns the number of objects.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns the approximate memory of all objects, in bytes; without their records if `has_shared_records`.
    pub(super) fn memory_bytes(&self, has_shared_records: bool) -> usize {
        let records = self.record_bytes + self.len() * ALLOCATION_OVERHEAD;
        self.slots.capacity() * size_of::<Slot>()
            + self.by_object.allocation_size()
            + self.names.allocation_size()
            + self.names.len() * ALLOCATION_OVERHEAD
            + self.name_bytes
            + if has_shared_records { 0 } else { records }
    }

    /// Returns the slot of an object; `None` if the view does not show it.
    pub(super) fn find(&self, object: &ObjectName) -> Option<u32> {
        self.find_parts(&object.container, object.key.as_bytes())
    }

    fn find_parts(&self, container: &str, key: &[u8]) -> Option<u32> {
        let is_same = |slot: &u32| self.object(*slot) == (container, key);
        self.by_object.find(naming::hash(container, key), is_same).copied()
    }

    pub(super) fn get(&self, slot: u32) -> PackedObject {
        let found = &self.slots[slot as usize];
        let container = Arc::clone(&self.containers.names[found.container as usize]);
        PackedObject::from_parts(container, Arc::clone(&found.record))
    }

    /// Returns the container and key of a slot's object.
    pub(super) fn object(&self, slot: u32) -> (&str, &[u8]) {
        let found = &self.slots[slot as usize];
        (&self.containers.names[found.container as usize], key_of(&found.record))
    }

    pub(super) fn directory(&self, slot: u32) -> DirectoryId {
        self.slots[slot as usize].directory
    }

    pub(super) fn set_directory(&mut self, slot: u32, directory: DirectoryId) {
        self.slots[slot as usize].directory = directory;
    }

    /// Adds an object in `directory`, or replaces its known state and leaves it in its directory. Returns its slot, and
    /// whether the object is new.
    pub(super) fn put(&mut self, object: PackedObject, directory: DirectoryId) -> (u32, bool) {
        self.record_bytes += object.record_bytes();
        if let Some(slot) = self.find_parts(object.container(), object.key()) {
            let found = &mut self.slots[slot as usize];
            self.record_bytes -= found.record.len();
            found.record = object.into_parts().1;
            return (slot, false);
        }
        let hash = naming::hash(object.container(), object.key());
        let (container, record) = object.into_parts();
        let container = self.containers.index_of(container);
        let slot = self.new_slot(Slot { record, container, directory });
        let (slots, containers) = (&self.slots, &self.containers);
        self.by_object.insert_unique(hash, slot, |slot| {
            let found = &slots[*slot as usize];
            naming::hash(&containers.names[found.container as usize], key_of(&found.record))
        });
        (slot, true)
    }

    fn new_slot(&mut self, new: Slot) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = new;
            return slot;
        }
        // Growing by an eighth wastes less than doubling, and copies each slot eight times at most on average.
        if self.slots.len() == self.slots.capacity() {
            self.slots.reserve_exact(self.slots.len() / 8 + 4);
        }
        self.slots.push(new);
        (self.slots.len() - 1) as u32
    }

    /// Removes a slot's object and frees the slot.
    pub(super) fn remove(&mut self, slot: u32) {
        let (container, key) = self.object(slot);
        let hash = naming::hash(container, key);
        if let Ok(entry) = self.by_object.find_entry(hash, |found| *found == slot) {
            entry.remove();
        }
        self.clear_name(slot);
        let record = std::mem::take(&mut self.slots[slot as usize].record);
        self.record_bytes -= record.len();
        self.free.push(slot);
    }

    /// Returns the object's name in its directory.
    pub(super) fn name(&self, slot: u32) -> &[u8] {
        match self.names.get(&slot) {
            Some(name) => name,
            None => last_component(self.object(slot).1),
        }
    }

    /// Returns the name that the object has if no other entry has it; `None` for the marker of a directory.
    pub(super) fn plain_name(&self, slot: u32) -> Option<EntryName> {
        naming::plain_name(self.object(slot).1)
    }

    /// Sets the object's name in its directory.
    pub(super) fn set_name(&mut self, slot: u32, name: &EntryName) {
        self.clear_name(slot);
        if last_component(self.object(slot).1) != &**name {
            self.name_bytes += name.len();
            self.names.insert(slot, Arc::clone(name));
        }
    }

    fn clear_name(&mut self, slot: u32) {
        if let Some(name) = self.names.remove(&slot) {
            self.name_bytes -= name.len();
        }
    }
}

impl Containers {
    fn index_of(&mut self, container: Arc<str>) -> u32 {
        let Self { names, indexes } = self;
        *indexes.entry(container).or_insert_with_key(|container| {
            names.push(Arc::clone(container));
            (names.len() - 1) as u32
        })
    }
}

/// Returns what follows the last `/` of a key, or the key.
fn last_component(key: &[u8]) -> &[u8] {
    let slash = key.iter().rposition(|byte| *byte == b'/');
    slash.map_or(key, |slash| &key[slash + 1..])
}
