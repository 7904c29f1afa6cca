//! The entries of a view, by path: directories and the objects in them. Does no I/O; the branch fills it.
//!
//! Invariants: an object lies in the one directory that its property names, or in the top directory if the view has no
//! directories; a directory other than the top exists as long as an object lies in or below it, or while this client
//! has made it.

use super::directory::{Directory, DirectoryEntry};
use super::naming::{self, EntryName};
use super::object_slots::{DirectoryId, ObjectSlots};
use super::stale::Stale;
use super::tree_error::TreeError;
use crate::{ObjectName, PackedObject};
use std::collections::{HashMap, HashSet};

/// The top directory of a view, which always exists.
const TOP: DirectoryId = DirectoryId(0);

/// Approximate memory of a directory in bytes, besides the slots of its objects, with its share of the table of
/// directories and its name.
const DIRECTORY_BYTES: usize = size_of::<Directory>() * 3 / 2 + 64;
/// Approximate memory of an object in the lists of its directory, in bytes.
const LISTED_BYTES: usize = 6;

/// The entry to which a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A directory.
    Directory,
    /// An object.
    File(PackedObject),
}

/// The directories and objects of a view.
#[derive(Debug)]
pub(super) struct PathIndex {
    has_directories: bool,
    directories: HashMap<DirectoryId, Directory>,
    objects: ObjectSlots,
    /// The id that a directory got last.
    last_id: u32,
    /// Number of changes in directories so far; the source of versions.
    changes: u64,
    /// Directories with changes since `take_stale` last took all of theirs.
    changed: HashSet<DirectoryId>,
}

impl PathIndex {
    /// Creates an index with directories, or with all objects in the top directory.
    pub(super) fn new(has_directories: bool) -> Self {
        let directories = [(TOP, Directory::default())].into();
        Self {
            has_directories,
            directories,
            objects: ObjectSlots::default(),
            last_id: 0,
            changes: 0,
            changed: HashSet::new(),
        }
    }

    /// Returns the number of objects.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns the approximate memory of the index, in bytes; without the objects' records if `has_shared_records`.
    pub(super) fn memory_bytes(&self, has_shared_records: bool) -> usize {
        self.objects.memory_bytes(has_shared_records)
            + self.objects.len() * LISTED_BYTES
            + self.directories.len() * DIRECTORY_BYTES
    }

    pub(super) fn get(&self, object: &ObjectName) -> Option<PackedObject> {
        self.objects.find(object).map(|slot| self.objects.get(slot))
    }

    /// Adds an object, or replaces its known state, in the directory that it names now. Ignores the marker of a
    /// directory.
    pub(super) fn put(&mut self, object: PackedObject) {
        let Some(plain) = naming::plain_name(object.key()) else { return };
        let path = if self.has_directories { naming::directory_of(&object) } else { Vec::new() };
        let directory = self.ensure_path(&path);
        let (slot, is_new) = self.objects.put(object, directory);
        let before = self.objects.directory(slot);
        if !is_new && before == directory {
            let (directory, objects) = self.changed_directory(directory);
            return directory.note_change(slot, objects);
        }
        // A move goes through the old directory first, because an object has one name at a time. The new directory, which may be
        // empty yet, and with it all of its parents, has to stay meanwhile.
        if !is_new {
            let (old, objects) = self.changed_directory(before);
            old.remove(slot, &plain, objects);
            self.objects.set_directory(slot, directory);
        }
        let (new, objects) = self.changed_directory(directory);
        new.add(slot, &plain, objects);
        if !is_new {
            self.forget_empty(before);
        }
    }

    /// Removes an object, and directories that become empty and that this client did not make. Does nothing if the view
    /// does not show it.
    pub(super) fn remove(&mut self, object: &ObjectName) {
        let Some(slot) = self.objects.find(object) else { return };
        let directory = self.objects.directory(slot);
        if let Some(plain) = self.objects.plain_name(slot) {
            let (directory, objects) = self.changed_directory(directory);
            directory.remove(slot, &plain, objects);
        }
        self.objects.remove(slot);
        self.forget_empty(directory);
    }

    /// Removes an object and keeps its directory, as if this client had made it.
    pub(super) fn remove_and_keep_directory(&mut self, object: &ObjectName) {
        if let Some(slot) = self.objects.find(object) {
            self.directory_mut(self.objects.directory(slot)).is_made = true;
        }
        self.remove(object);
    }

    /// Returns the entry of a path; `None` if there is none.
    pub(super) fn find(&self, path: &[&[u8]]) -> Option<Entry> {
        let Some((name, above)) = path.split_last() else { return Some(Entry::Directory) };
        let directory = self.directories.get(&self.directory(above)?)?;
        directory.find(name, &self.objects).map(|found| self.entry(found))
    }

    /// Returns the entries of a directory after a name, in the order of names; `None` if there is no such directory.
    pub(super) fn list(
        &self,
        path: &[&[u8]],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Option<Vec<(EntryName, Entry)>> {
        let directory = self.directories.get(&self.directory(path)?)?;
        let entries = directory.after(after, &self.objects).take(limit);
        Some(entries.map(|(name, found)| (name.into(), self.entry(found))).collect())
    }

    /// Returns the version of a directory, which no other content of it has; `None` if there is no such directory.
    pub(super) fn version(&self, path: &[&[u8]]) -> Option<u64> {
        Some(self.directories.get(&self.directory(path)?)?.version)
    }

    /// Raises all versions above those of another index, so that no directory gets a version that it had there.
    pub(super) fn continue_versions_of(&mut self, others: &Self) {
        let by = others.changes + 1;
        self.changes += by;
        self.directories.values_mut().for_each(|directory| directory.version += by);
    }

    /// Takes the directories with stale names: each once, with at most `limit` names in all.
    pub(super) fn take_stale(&mut self, limit: usize) -> Vec<Stale> {
        let (mut stale, mut room) = (Vec::new(), limit);
        let changed: Vec<DirectoryId> = self.changed.iter().copied().take(limit).collect();
        for id in changed {
            if room == 0 {
                break;
            }
            // A removed directory is stale as a name in its parent.
            let Some(directory) = self.directories.get_mut(&id) else {
                self.changed.remove(&id);
                continue;
            };
            let (names, has_more) = directory.take_stale(room);
            room = room.saturating_sub(names.len().max(1));
            if !has_more {
                self.changed.remove(&id);
            }
            stale.push(Stale { directory: self.path_of(id), names: Some(names) });
        }
        stale
    }

    pub(super) fn has_stale(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Returns whether there are neither objects nor directories.
    pub(super) fn has_no_content(&self) -> bool {
        self.objects.len() == 0 && self.directories.len() == 1
    }

    /// Discards all stale names.
    pub(super) fn clear_stale(&mut self) {
        for id in self.changed.drain() {
            if let Some(directory) = self.directories.get_mut(&id) {
                directory.take_stale(usize::MAX);
            }
        }
    }

    /// Fails unless a new directory can have a path: its name is valid and free, and its parent is a directory.
    pub(super) fn expect_vacant(&self, path: &[&[u8]]) -> Result<(), TreeError> {
        let Some((name, above)) = path.split_last() else { return Err(TreeError::Exists) };
        if !naming::is_valid_name(name) {
            return Err(TreeError::Invalid(
                "this name is not valid for a directory: '.', '..', or too long".to_owned(),
            ));
        }
        match (self.find(above), self.find(path)) {
            (None, _) => Err(TreeError::NotFound),
            (Some(Entry::File(_)), _) => Err(TreeError::NotDirectory),
            (_, Some(_)) => Err(TreeError::Exists),
            (Some(Entry::Directory), None) => Ok(()),
        }
    }

    /// Fails unless a path leads to an empty directory.
    pub(super) fn expect_empty(&self, path: &[&[u8]]) -> Result<(), TreeError> {
        match (self.find(path), self.list(path, None, 1)) {
            (None, _) => Err(TreeError::NotFound),
            (Some(Entry::File(_)), _) => Err(TreeError::NotDirectory),
            (_, Some(entries)) if entries.is_empty() => Ok(()),
            (Some(Entry::Directory), _) => Err(TreeError::NotEmpty),
        }
    }

    /// Returns the paths of directories that this client made.
    pub(super) fn made_directories(&self) -> Vec<Vec<EntryName>> {
        let made = self.directories.iter().filter(|(_, directory)| directory.is_made);
        made.map(|(id, _)| self.path_of(*id)).collect()
    }

    /// Returns the path of a directory from the top directory.
    fn path_of(&self, id: DirectoryId) -> Vec<EntryName> {
        let parent = |id: &DirectoryId| self.directories.get(id).and_then(|at| at.parent.clone());
        let up = std::iter::successors(parent(&id), |(above, _)| parent(above));
        let mut path: Vec<EntryName> = up.map(|(_, name)| name).collect();
        path.reverse();
        path
    }

    /// Makes a directory and its missing parents.
    pub(super) fn make_directory(&mut self, path: &[impl AsRef<[u8]>]) {
        let path: Vec<EntryName> = path.iter().map(|name| name.as_ref().into()).collect();
        let directory = self.ensure_path(&path);
        self.directory_mut(directory).is_made = true;
    }

    /// Ends that a directory stays while it is empty, and removes it if it is, with parents to which the same applies.
    pub(super) fn unmake_directory(&mut self, path: &[&[u8]]) {
        if let Some(directory) = self.directory(path) {
            self.directory_mut(directory).is_made = false;
            self.forget_empty(directory);
        }
    }

    /// Moves the directories that this client made, in or below `from`, to `to`. The objects in them are moved
    /// separately.
    pub(super) fn move_made_directories(&mut self, from: &[&[u8]], to: &[&[u8]]) {
        let mut made = self.made_directories();
        made.retain(|path| {
            path.len() >= from.len() && path.iter().zip(from).all(|(name, from)| **name == **from)
        });
        // The deepest come first, so that parents are empty when their turn comes.
        made.sort_by_key(|path| std::cmp::Reverse(path.len()));
        for path in made {
            let moved: Vec<&[u8]> =
                to.iter().copied().chain(path[from.len()..].iter().map(|name| &**name)).collect();
            self.make_directory(&moved);
            let path: Vec<&[u8]> = path.iter().map(|name| &**name).collect();
            self.unmake_directory(&path);
        }
    }

    /// Returns the objects in and below a directory, each with the path from that directory to its own.
    pub(super) fn objects_below(&self, path: &[&[u8]]) -> Vec<(Vec<EntryName>, PackedObject)> {
        let mut found = Vec::new();
        let mut left: Vec<(DirectoryId, Vec<EntryName>)> = Vec::new();
        left.extend(self.directory(path).map(|top| (top, Vec::new())));
        while let Some((id, below)) = left.pop() {
            let Some(directory) = self.directories.get(&id) else { continue };
            for (name, entry) in directory.after(None, &self.objects) {
                match entry {
                    DirectoryEntry::File(slot) => found.push((below.clone(), self.objects.get(slot))),
                    DirectoryEntry::Directory(id) => {
                        left.push((id, [&below[..], &[EntryName::from(name)][..]].concat()))
                    }
                }
            }
        }
        found
    }

    /// Returns the directory of a path; `None` if there is none.
    fn directory(&self, path: &[&[u8]]) -> Option<DirectoryId> {
        path.iter().try_fold(TOP, |at, name| self.directories.get(&at)?.directory(name))
    }

    /// Returns the directory of a path. Makes it and its parents where they are missing.
    fn ensure_path(&mut self, path: &[EntryName]) -> DirectoryId {
        path.iter().fold(TOP, |at, name| {
            let there = self.directories.get(&at).and_then(|at| at.directory(name));
            there.unwrap_or_else(|| self.add_directory(at, name))
        })
    }

    /// Adds a directory to its parent, under an id that no directory has.
    fn add_directory(&mut self, parent: DirectoryId, name: &EntryName) -> DirectoryId {
        self.last_id = self.last_id.wrapping_add(1);
        while self.directories.contains_key(&DirectoryId(self.last_id)) {
            self.last_id = self.last_id.wrapping_add(1);
        }
        let id = DirectoryId(self.last_id);
        self.directories.insert(id, Directory::within(parent, name.clone()));
        let (parent, objects) = self.changed_directory(parent);
        parent.add_directory(name, id, objects);
        id
    }

    /// Removes a directory that is empty and was not made by this client, and then parents to which the same applies.
    fn forget_empty(&mut self, mut id: DirectoryId) {
        while let Some(directory) = self.directories.get(&id).filter(|at| at.is_empty() && !at.is_made)
            && let Some((parent, name)) = directory.parent.clone()
        {
            self.directories.remove(&id);
            let (above, objects) = self.changed_directory(parent);
            above.remove_directory(&name, objects);
            id = parent;
        }
    }

    /// Returns a directory for a change, with a new version and marked as changed, and the objects.
    fn changed_directory(&mut self, id: DirectoryId) -> (&mut Directory, &mut ObjectSlots) {
        self.changes += 1;
        self.changed.insert(id);
        let directory = self.directories.entry(id).or_default();
        directory.version = self.changes;
        (directory, &mut self.objects)
    }

    fn directory_mut(&mut self, id: DirectoryId) -> &mut Directory {
        self.directories.entry(id).or_default()
    }

    fn entry(&self, found: DirectoryEntry) -> Entry {
        match found {
            DirectoryEntry::Directory(_) => Entry::Directory,
            DirectoryEntry::File(slot) => Entry::File(self.objects.get(slot)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shown;
    use std::collections::BTreeMap;
    use store::{ETag, ObjectKey, Timestamp};

    fn name(key: &str) -> ObjectName {
        ObjectName { container: "bucket".into(), key: ObjectKey::try_from(key).unwrap() }
    }

    fn shown(key: &str, at: &str, size_bytes: u64) -> PackedObject {
        let properties = BTreeMap::from([(naming::DIRECTORY_PROPERTY.to_owned(), at.to_owned())]);
        PackedObject::from(Shown {
            name: name(key),
            size_bytes,
            etag: ETag::new("e"),
            modified: Timestamp::default(),
            content_type: None,
            properties: Some(properties),
            tags: None,
        })
    }

    fn stale(index: &mut PathIndex) -> Vec<(String, Vec<String>)> {
        let text = |name: &EntryName| String::from_utf8_lossy(name).into_owned();
        let path = |path: &[EntryName]| path.iter().map(text).collect::<Vec<_>>().join("/");
        let stale = index.take_stale(9).into_iter();
        let mut all: Vec<_> = stale
            .map(|stale| (path(&stale.directory), stale.names.unwrap_or_default().iter().map(text).collect()))
            .collect();
        all.sort();
        all
    }

    fn of(directory: &str, names: &[&str]) -> (String, Vec<String>) {
        (directory.to_owned(), names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn new_names_are_not_stale_and_every_content_has_its_own_version() {
        let mut index = PathIndex::new(true);
        index.put(shown("a", "d", 1));
        assert_eq!(stale(&mut index), [of("", &[]), of("d", &[])]);
        assert_eq!(stale(&mut index), []);
        let first = index.version(&[b"d"]);
        index.put(shown("a", "d", 2));
        assert_eq!(stale(&mut index), [of("d", &["a"])]);
        assert!(index.version(&[b"d"]) > first && index.version(&[b"x"]).is_none());
        index.put(shown("a", "", 2));
        assert_eq!(stale(&mut index), [of("", &["d"])], "a removed directory is stale in its parent");
        index.put(shown("x/a", "", 3));
        assert_eq!(stale(&mut index), [of("", &[])]);
        index.remove(&name("a"));
        let [(_, top)] = &stale(&mut index)[..] else { panic!("one directory") };
        assert!(top.len() == 2 && top[0] == "a" && top[1].starts_with("a~"), "{top:?}");
        let mut others = PathIndex::new(true);
        others.put(shown("a", "", 1));
        others.continue_versions_of(&index);
        assert!(others.version(&[]) > index.version(&[]));
    }
}
