//! The entries of a view, by path: directories and the objects in them. Pure; the branch fills it.
//!
//! Invariants: an object lies in the one directory that its property names; a directory other than the top exists as
//! long as an object lies in or below it, or while this client has made it.

use super::directory::{Directory, Slot};
use super::naming::{self, EntryName};
use super::{Stale, TreeError};
use crate::{ObjectName, Shown};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Id of a directory of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DirectoryId(u64);

const TOP: DirectoryId = DirectoryId(0);

/// Entry of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A directory.
    Directory,
    /// An object.
    File(Arc<Shown>),
}

#[derive(Debug)]
pub(super) struct PathIndex {
    has_directories: bool,
    directories: HashMap<DirectoryId, Directory>,
    objects: HashMap<ObjectName, Placed>,
    last_id: u64,
    /// Number of changes in directories so far; the source of versions.
    changes: u64,
    /// Directories with changes since `take_stale` last took all of theirs.
    changed: HashSet<DirectoryId>,
}

#[derive(Debug)]
struct Placed {
    shown: Arc<Shown>,
    directory: DirectoryId,
}

impl PathIndex {
    /// Creates an index with directories, or with all objects in the top directory.
    pub(super) fn new(has_directories: bool) -> Self {
        let directories = [(TOP, Directory::default())].into();
        Self {
            has_directories,
            directories,
            objects: HashMap::new(),
            last_id: 0,
            changes: 0,
            changed: HashSet::new(),
        }
    }

    /// Returns the number of objects.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn get(&self, object: &ObjectName) -> Option<&Arc<Shown>> {
        self.objects.get(object).map(|placed| &placed.shown)
    }

    /// Adds an object, or replaces its known state, in the directory that it names now.
    pub(super) fn put(&mut self, shown: Arc<Shown>) {
        let Some(plain) = naming::plain_name(&shown.name) else { return };
        let path = if self.has_directories { naming::directory_of(&shown) } else { Vec::new() };
        let directory = self.ensure_path(&path);
        let name = shown.name.clone();
        let placed = Placed { shown: shown.clone(), directory };
        let before = self.objects.insert(name.clone(), placed).map(|before| before.directory);
        // The object is added before it is removed from its old directory: otherwise a common parent could be dropped
        // as empty.
        self.changed_directory(directory).put(&plain, shown);
        if let Some(before) = before.filter(|before| *before != directory) {
            self.remove_from(before, &plain, &name);
        }
    }

    /// Removes an object.
    pub(super) fn remove(&mut self, object: &ObjectName) {
        let Some(placed) = self.objects.remove(object) else { return };
        if let Some(plain) = naming::plain_name(object) {
            self.remove_from(placed.directory, &plain, object);
        }
    }

    /// Removes an object and keeps its directory.
    pub(super) fn remove_and_keep_directory(&mut self, object: &ObjectName) {
        if let Some(placed) = self.objects.get(object) {
            let directory = placed.directory;
            self.directory_mut(directory).is_made = true;
        }
        self.remove(object);
    }

    pub(super) fn find(&self, path: &[&[u8]]) -> Option<Entry> {
        let Some((name, above)) = path.split_last() else { return Some(Entry::Directory) };
        let directory = self.directories.get(&self.directory(above)?)?;
        directory.find(name).map(entry)
    }

    /// Returns the entries of a directory after a name, in the order of names; `None` if there is no such directory.
    pub(super) fn list(
        &self,
        path: &[&[u8]],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Option<Vec<(EntryName, Entry)>> {
        let directory = self.directories.get(&self.directory(path)?)?;
        let entries = directory.after(after).take(limit);
        Some(entries.map(|(name, slot)| (name.clone(), entry(slot))).collect())
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
        self.objects.is_empty() && self.directories.len() == 1
    }

    /// Discards all stale names.
    pub(super) fn clear_stale(&mut self) {
        for id in self.changed.drain() {
            if let Some(directory) = self.directories.get_mut(&id) {
                directory.take_stale(usize::MAX);
            }
        }
    }

    /// Checks that a new directory can have a path.
    pub(super) fn expect_vacant(&self, path: &[&[u8]]) -> Result<(), TreeError> {
        let Some((name, above)) = path.split_last() else { return Err(TreeError::Exists) };
        if !naming::is_valid_name(name) {
            return Err(TreeError::Invalid("this name is not valid for a directory".to_owned()));
        }
        match (self.find(above), self.find(path)) {
            (None, _) => Err(TreeError::NotFound),
            (Some(Entry::File(_)), _) => Err(TreeError::NotDirectory),
            (_, Some(_)) => Err(TreeError::Exists),
            (Some(Entry::Directory), None) => Ok(()),
        }
    }

    /// Checks that a path leads to an empty directory.
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

    /// Removes a directory that this client made, if it is empty.
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
    pub(super) fn objects_below(&self, path: &[&[u8]]) -> Vec<(Vec<EntryName>, Arc<Shown>)> {
        let mut found = Vec::new();
        let mut left: Vec<(DirectoryId, Vec<EntryName>)> = Vec::new();
        left.extend(self.directory(path).map(|top| (top, Vec::new())));
        while let Some((id, below)) = left.pop() {
            let Some(directory) = self.directories.get(&id) else { continue };
            for (name, slot) in directory.after(None) {
                match slot {
                    Slot::File(shown) => found.push((below.clone(), shown.clone())),
                    Slot::Directory(id) => {
                        left.push((*id, [&below[..], std::slice::from_ref(name)].concat()))
                    }
                }
            }
        }
        found
    }

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

    fn add_directory(&mut self, parent: DirectoryId, name: &EntryName) -> DirectoryId {
        self.last_id += 1;
        let id = DirectoryId(self.last_id);
        self.directories.insert(id, Directory::within(parent, name.clone()));
        self.changed_directory(parent).put_directory(name, id);
        id
    }

    fn remove_from(&mut self, directory: DirectoryId, plain: &EntryName, object: &ObjectName) {
        self.changed_directory(directory).remove(plain, object);
        self.forget_empty(directory);
    }

    /// Removes a directory that is empty and was not made by this client, and then parents to which the same applies.
    fn forget_empty(&mut self, mut id: DirectoryId) {
        while let Some(directory) = self.directories.get(&id).filter(|at| at.is_empty() && !at.is_made)
            && let Some((parent, name)) = directory.parent.clone()
        {
            self.directories.remove(&id);
            self.changed_directory(parent).remove_directory(&name);
            id = parent;
        }
    }

    /// Returns a directory for a change, with a new version and marked as changed.
    fn changed_directory(&mut self, id: DirectoryId) -> &mut Directory {
        self.changes += 1;
        self.changed.insert(id);
        let version = self.changes;
        let directory = self.directory_mut(id);
        directory.version = version;
        directory
    }

    fn directory_mut(&mut self, id: DirectoryId) -> &mut Directory {
        self.directories.entry(id).or_default()
    }
}

fn entry(slot: &Slot) -> Entry {
    match slot {
        Slot::Directory(_) => Entry::Directory,
        Slot::File(shown) => Entry::File(shown.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use store::{ETag, ObjectKey, Timestamp};

    fn shown(key: &str, at: &str, size_bytes: u64) -> Arc<Shown> {
        let name = ObjectName { container: "bucket".into(), key: ObjectKey::try_from(key).unwrap() };
        let properties = BTreeMap::from([(super::super::DIRECTORY_PROPERTY.to_owned(), at.to_owned())]);
        Arc::new(Shown {
            name,
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
        index.remove(&shown("a", "", 2).name);
        let [(_, top)] = &stale(&mut index)[..] else { panic!("one directory") };
        assert!(top.len() == 2 && top[0] == "a" && top[1].starts_with("a~"), "{top:?}");
        let mut others = PathIndex::new(true);
        others.put(shown("a", "", 1));
        others.continue_versions_of(&index);
        assert!(others.version(&[]) > index.version(&[]));
    }
}
