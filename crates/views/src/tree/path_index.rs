//! What a view shows, by path: directories and the objects in them. Pure; who fills it is the branch.
//!
//! Invariants: an object lies in one directory, the one that it says; a directory other than the top is there as long as
//! something lies in or below it, or it was made here.

use super::directory::{Directory, Slot};
use super::naming::{self, EntryName};
use super::{Stale, TreeError};
use crate::{ObjectName, Shown};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// One of the directories of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DirectoryId(u64);

const TOP: DirectoryId = DirectoryId(0);

/// What a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A directory.
    Directory,
    /// An object.
    File(Arc<Shown>),
}

#[derive(Debug)]
pub(super) struct Names {
    has_directories: bool,
    directories: HashMap<DirectoryId, Directory>,
    objects: HashMap<ObjectName, Placed>,
    last: u64,
    /// Counts what happens in directories.
    changes: u64,
    /// The directories in which something did, until somebody takes note of it.
    changed: HashSet<DirectoryId>,
}

#[derive(Debug)]
struct Placed {
    shown: Arc<Shown>,
    directory: DirectoryId,
}

impl Names {
    /// With directories, or all in the top.
    pub(super) fn new(has_directories: bool) -> Self {
        let directories = [(TOP, Directory::default())].into();
        Self {
            has_directories,
            directories,
            objects: HashMap::new(),
            last: 0,
            changes: 0,
            changed: HashSet::new(),
        }
    }

    /// How many objects there are.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn get(&self, object: &ObjectName) -> Option<&Arc<Shown>> {
        self.objects.get(object).map(|placed| &placed.shown)
    }

    /// Shows an object, where it says now that it lies.
    pub(super) fn put(&mut self, shown: Arc<Shown>) {
        let Some(plain) = naming::plain(&shown.name) else { return };
        let path = if self.has_directories { naming::directory_of(&shown) } else { Vec::new() };
        let directory = self.made_way(&path);
        let name = shown.name.clone();
        let placed = Placed { shown: shown.clone(), directory };
        let before = self.objects.insert(name.clone(), placed).map(|before| before.directory);
        // It arrives before it leaves: else a directory above both could be forgotten.
        self.changing(directory).put(&plain, shown);
        if let Some(before) = before.filter(|before| *before != directory) {
            self.leave(before, &plain, &name);
        }
    }

    /// Lets an object go.
    pub(super) fn remove(&mut self, object: &ObjectName) {
        let Some(placed) = self.objects.remove(object) else { return };
        if let Some(plain) = naming::plain(object) {
            self.leave(placed.directory, &plain, object);
        }
    }

    /// Lets an object go; its directory stays.
    pub(super) fn remove_and_keep_directory(&mut self, object: &ObjectName) {
        if let Some(placed) = self.objects.get(object) {
            let directory = placed.directory;
            self.at_mut(directory).is_made = true;
        }
        self.remove(object);
    }

    pub(super) fn find(&self, path: &[&[u8]]) -> Option<Entry> {
        let Some((name, above)) = path.split_last() else { return Some(Entry::Directory) };
        let directory = self.directories.get(&self.directory(above)?)?;
        directory.find(name).map(entry)
    }

    /// The entries of a directory, in the order of names, after one; `None` if there is no such directory.
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

    /// A number that no other content of a directory had; `None` if there is no such directory.
    pub(super) fn version(&self, path: &[&[u8]]) -> Option<u64> {
        Some(self.directories.get(&self.directory(path)?)?.version)
    }

    /// Goes on where others end: no directory has a version that one of theirs had.
    pub(super) fn go_on_from(&mut self, others: &Self) {
        let by = others.changes + 1;
        self.changes += by;
        self.directories.values_mut().for_each(|directory| directory.version += by);
    }

    /// The directories in which something happened, each once, with so many names at most.
    pub(super) fn take_stale(&mut self, limit: usize) -> Vec<Stale> {
        let (mut stale, mut room) = (Vec::new(), limit);
        let changed: Vec<DirectoryId> = self.changed.iter().copied().take(limit).collect();
        for id in changed {
            if room == 0 {
                break;
            }
            // Of one that is gone the directory above says so.
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

    pub(super) fn is_stirred(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Whether nothing is there, not even a directory.
    pub(super) fn is_bare(&self) -> bool {
        self.objects.is_empty() && self.directories.len() == 1
    }

    /// Nobody needs to know what happened so far.
    pub(super) fn forget_stale(&mut self) {
        for id in self.changed.drain() {
            if let Some(directory) = self.directories.get_mut(&id) {
                directory.take_stale(usize::MAX);
            }
        }
    }

    /// Whether something new can have a path.
    pub(super) fn expect_vacant(&self, path: &[&[u8]]) -> Result<(), TreeError> {
        let Some((name, above)) = path.split_last() else { return Err(TreeError::Exists) };
        if !naming::is_name(name) {
            return Err(TreeError::Invalid("no directory can have this name".to_owned()));
        }
        match (self.find(above), self.find(path)) {
            (None, _) => Err(TreeError::NotFound),
            (Some(Entry::File(_)), _) => Err(TreeError::NotDirectory),
            (_, Some(_)) => Err(TreeError::Exists),
            (Some(Entry::Directory), None) => Ok(()),
        }
    }

    /// Whether an empty directory has a path.
    pub(super) fn expect_empty(&self, path: &[&[u8]]) -> Result<(), TreeError> {
        match (self.find(path), self.list(path, None, 1)) {
            (None, _) => Err(TreeError::NotFound),
            (Some(Entry::File(_)), _) => Err(TreeError::NotDirectory),
            (_, Some(entries)) if entries.is_empty() => Ok(()),
            (Some(Entry::Directory), _) => Err(TreeError::NotEmpty),
        }
    }

    /// The directories that were made here.
    pub(super) fn made_paths(&self) -> Vec<Vec<EntryName>> {
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

    /// Makes a directory, and those above it.
    pub(super) fn make(&mut self, path: &[impl AsRef<[u8]>]) {
        let path: Vec<EntryName> = path.iter().map(|name| name.as_ref().into()).collect();
        let directory = self.made_way(&path);
        self.at_mut(directory).is_made = true;
    }

    /// Removes a directory, if it is empty.
    pub(super) fn unmake(&mut self, path: &[&[u8]]) {
        if let Some(directory) = self.directory(path) {
            self.at_mut(directory).is_made = false;
            self.forget_empty(directory);
        }
    }

    /// Moves the directories that were made here in or below a path; what lies in them follows.
    pub(super) fn move_made(&mut self, from: &[&[u8]], to: &[&[u8]]) {
        let mut made = self.made_paths();
        made.retain(|path| {
            path.len() >= from.len() && path.iter().zip(from).all(|(name, from)| **name == **from)
        });
        // The deepest first: those above are empty when their turn comes.
        made.sort_by_key(|path| std::cmp::Reverse(path.len()));
        for path in made {
            let moved: Vec<&[u8]> =
                to.iter().copied().chain(path[from.len()..].iter().map(|name| &**name)).collect();
            self.make(&moved);
            let path: Vec<&[u8]> = path.iter().map(|name| &**name).collect();
            self.unmake(&path);
        }
    }

    /// The objects in and below a directory, each with the directories between.
    pub(super) fn beneath(&self, path: &[&[u8]]) -> Vec<(Vec<EntryName>, Arc<Shown>)> {
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

    /// The directory of a path, made with those above it as far as they are missing.
    fn made_way(&mut self, path: &[EntryName]) -> DirectoryId {
        path.iter().fold(TOP, |at, name| {
            let there = self.directories.get(&at).and_then(|at| at.directory(name));
            there.unwrap_or_else(|| self.made(at, name))
        })
    }

    fn made(&mut self, parent: DirectoryId, name: &EntryName) -> DirectoryId {
        self.last += 1;
        let id = DirectoryId(self.last);
        self.directories.insert(id, Directory::within(parent, name.clone()));
        self.changing(parent).put_directory(name, id);
        id
    }

    fn leave(&mut self, directory: DirectoryId, plain: &EntryName, object: &ObjectName) {
        self.changing(directory).remove(plain, object);
        self.forget_empty(directory);
    }

    /// Forgets a directory that has no reason to be there, and those above it that have no other.
    fn forget_empty(&mut self, mut id: DirectoryId) {
        while let Some(directory) = self.directories.get(&id).filter(|at| at.is_empty() && !at.is_made)
            && let Some((parent, name)) = directory.parent.clone()
        {
            self.directories.remove(&id);
            self.changing(parent).remove_directory(&name);
            id = parent;
        }
    }

    /// A directory in which something is about to change.
    fn changing(&mut self, id: DirectoryId) -> &mut Directory {
        self.changes += 1;
        self.changed.insert(id);
        let version = self.changes;
        let directory = self.at_mut(id);
        directory.version = version;
        directory
    }

    fn at_mut(&mut self, id: DirectoryId) -> &mut Directory {
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

    fn stale(names: &mut Names) -> Vec<(String, Vec<String>)> {
        let text = |name: &EntryName| String::from_utf8_lossy(name).into_owned();
        let path = |path: &[EntryName]| path.iter().map(text).collect::<Vec<_>>().join("/");
        let stale = names.take_stale(9).into_iter();
        let mut all: Vec<_> = stale
            .map(|one| (path(&one.directory), one.names.unwrap_or_default().iter().map(text).collect()))
            .collect();
        all.sort();
        all
    }

    fn of(directory: &str, names: &[&str]) -> (String, Vec<String>) {
        (directory.to_owned(), names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn what_led_nowhere_is_not_stale_and_every_content_has_a_version_of_its_own() {
        let mut names = Names::new(true);
        names.put(shown("a", "d", 1));
        assert_eq!(stale(&mut names), [of("", &[]), of("d", &[])]);
        assert_eq!(stale(&mut names), []);
        let first = names.version(&[b"d"]);
        names.put(shown("a", "d", 2));
        assert_eq!(stale(&mut names), [of("d", &["a"])]);
        assert!(names.version(&[b"d"]) > first && names.version(&[b"x"]).is_none());
        names.put(shown("a", "", 2));
        assert_eq!(stale(&mut names), [of("", &["d"])], "of a directory that is gone the one above says so");
        names.put(shown("x/a", "", 3));
        assert_eq!(stale(&mut names), [of("", &[])]);
        names.remove(&shown("a", "", 2).name);
        let [(_, top)] = &stale(&mut names)[..] else { panic!("one directory") };
        assert!(top.len() == 2 && top[0] == "a" && top[1].starts_with("a~"), "{top:?}");
        let mut others = Names::new(true);
        others.put(shown("a", "", 1));
        others.go_on_from(&names);
        assert!(others.version(&[]) > names.version(&[]));
    }
}
