//! Inode numbers of derived directories, and what the kernel references of them.
//!
//! A number has the highest bit set, which no inode of a namespace has. It is a hash of the directory's place, so it stays the
//! same as long as no other directory uses it. A renamed directory keeps its number.

use meta::{Ino, Kind, Name};
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::Timestamp;

use super::created_files::CreatedFiles;
use super::listings::Listings;
use super::{Derived, DerivedStale};
use crate::bucket::headers::Defaults;
use crate::{Attr, Error, Result};

/// The bit that only the numbers of derived directories have.
const DERIVED_BIT: u64 = 1 << 63;

/// Returns whether a number is that of a derived directory.
pub(crate) fn is_derived(ino: Ino) -> bool {
    ino.0 & DERIVED_BIT != 0
}

/// A directory and a name in it.
pub(super) type DentryKey = (Ino, Name);

/// The derived directories of a file system.
#[derive(Debug)]
pub(crate) struct DerivedDirectories {
    /// The source of the directories, such as the views of a mount.
    pub(super) tree: Arc<dyn Derived>,
    /// The name of the top directory in the root; `None` if the derived directories replace the root.
    pub(crate) at: Option<Name>,
    /// The number of the top directory.
    pub(crate) root: Ino,
    /// The mode of the top directory, if it differs from the default mode.
    top_mode: Option<u16>,
    /// When the tree was attached: all times of every derived directory.
    attached_at: Timestamp,
    nodes: Mutex<Nodes>,
    /// Files that were created in derived directories.
    pub(super) created: CreatedFiles,
    /// Listings that front ends may have cached.
    pub(crate) listings: Listings,
    /// Stale names that front ends have not been told of.
    pub(super) untold: Mutex<VecDeque<DerivedStale>>,
}

#[derive(Debug, Default)]
struct Nodes {
    /// Directories that the kernel references, by number.
    by_ino: HashMap<Ino, Node>,
    /// The numbers of these directories, by place.
    by_place: HashMap<DentryKey, Ino>,
    /// Referenced files, each with the name under which the kernel last found it.
    files: HashMap<Ino, DentryKey>,
    /// Referenced files by name, including names under which the kernel found them earlier.
    by_name: HashMap<DentryKey, Ino>,
    /// Earlier names of referenced files that were found under several names.
    before: HashMap<Ino, Vec<DentryKey>>,
}

/// Bytes of memory of a file that the kernel found in a view: two places in hash tables, and its name.
const FILE_BYTES: usize = 2 * 48 + 80;
/// Bytes of memory of a directory that the kernel references.
const DIRECTORY_BYTES: usize = 2 * 64 + 80;

#[derive(Debug)]
struct Node {
    /// The directory above, and the name in it.
    place: DentryKey,
    /// Number of references of the kernel.
    references: u64,
}

impl DerivedDirectories {
    pub(crate) fn new(
        tree: Arc<dyn Derived>,
        at: Option<Name>,
        top_mode: Option<u16>,
        attached_at: Timestamp,
    ) -> Self {
        let root = if at.is_some() { Ino(DERIVED_BIT) } else { Ino::ROOT };
        let (nodes, created) = (Mutex::default(), CreatedFiles::default());
        let (listings, untold) = (Listings::default(), Mutex::default());
        Self { tree, at, root, top_mode, attached_at, nodes, created, listings, untold }
    }

    /// Returns the path of a derived directory; ENOENT if the kernel does not reference it.
    pub(super) fn path(&self, mut dir: Ino) -> Result<Vec<Name>> {
        let nodes = self.nodes();
        let mut path = Vec::new();
        while dir != self.root {
            let node = nodes.by_ino.get(&dir).ok_or(Error::NOT_FOUND)?;
            path.push(node.place.1.clone());
            dir = node.place.0;
        }
        path.reverse();
        Ok(path)
    }

    /// Returns the path of a name in a derived directory.
    pub(super) fn path_of(&self, (dir, name): (Ino, &Name)) -> Result<Vec<Name>> {
        let mut path = self.path(dir)?;
        path.push(name.clone());
        Ok(path)
    }

    /// Returns the parent of a directory; the volume's root for the top directory and for a directory that is not
    /// referenced.
    pub(crate) fn parent(&self, dir: Ino) -> Ino {
        self.nodes().by_ino.get(&dir).map_or(Ino::ROOT, |node| node.place.0)
    }

    /// Returns the number of a directory without adding a reference.
    pub(super) fn number(&self, place: &DentryKey) -> Ino {
        self.nodes().number(place)
    }

    /// Returns the number of a directory, and adds a kernel reference.
    pub(super) fn refer(&self, place: DentryKey) -> Ino {
        let mut nodes = self.nodes();
        let ino = nodes.number(&place);
        let node = nodes.by_ino.entry(ino).or_insert_with(|| Node { place: place.clone(), references: 0 });
        node.references += 1;
        nodes.by_place.insert(place, ino);
        ino
    }

    /// Removes kernel references.
    pub(crate) fn forget(&self, ino: Ino, count: u64) {
        let mut nodes = self.nodes();
        let Some(node) = nodes.by_ino.get_mut(&ino) else { return };
        node.references = node.references.saturating_sub(count);
        if node.references == 0 {
            let place = node.place.clone();
            nodes.by_ino.remove(&ino);
            if nodes.by_place.get(&place) == Some(&ino) {
                nodes.by_place.remove(&place);
            }
            self.listings.forget(ino);
        }
    }

    /// Changes the place of a directory.
    pub(super) fn rename(&self, from: &DentryKey, to: &DentryKey) {
        let mut nodes = self.nodes();
        let Some(ino) = nodes.by_place.remove(from) else { return };
        if let Some(node) = nodes.by_ino.get_mut(&ino) {
            node.place = to.clone();
        }
        nodes.by_place.insert(to.clone(), ino);
    }

    /// Removes a directory from its place.
    pub(super) fn remove(&self, place: &DentryKey) {
        self.nodes().by_place.remove(place);
    }

    /// Records the name under which the kernel found a file that it references.
    pub(super) fn record_shown(&self, ino: Ino, place: DentryKey) {
        self.nodes().record_shown(ino, place);
    }

    /// Returns the name under which the kernel last found a file that it references.
    pub(crate) fn shown_at(&self, ino: Ino) -> Option<DentryKey> {
        self.nodes().files.get(&ino).cloned()
    }

    /// Forgets a file that the kernel no longer references.
    pub(crate) fn forget_file(&self, ino: Ino) {
        self.nodes().forget_file(ino);
    }

    /// Returns the file that the kernel found under a name, if it references the file.
    pub(super) fn held_file(&self, place: &DentryKey) -> Option<Ino> {
        self.nodes().by_name.get(place).copied()
    }

    /// Returns the number of a directory, if the kernel references it and all directories above.
    pub(super) fn held(&self, path: &[Name]) -> Option<Ino> {
        let nodes = self.nodes();
        path.iter().try_fold(self.root, |dir, name| nodes.by_place.get(&(dir, name.clone())).copied())
    }

    /// Returns the names that the kernel may have cached, by directory, in a directory and all below it.
    pub(super) fn held_below(&self, top: Ino) -> HashMap<Ino, Vec<Name>> {
        let nodes = self.nodes();
        let mut held: HashMap<Ino, Vec<Name>> = HashMap::new();
        for (dir, name) in nodes.by_name.keys().chain(nodes.by_place.keys()) {
            let mut ancestors = std::iter::successors(Some(*dir), |at| Some(nodes.by_ino.get(at)?.place.0));
            if ancestors.any(|at| at == top) {
                held.entry(*dir).or_default().push(name.clone());
            }
        }
        held
    }

    /// Returns the attributes of a derived directory.
    pub(super) fn attr(&self, ino: Ino, defaults: &Defaults) -> Attr {
        Attr {
            ino,
            kind: Kind::Directory,
            mode: self.top_mode.filter(|_| ino == self.root).unwrap_or(defaults.dir_mode),
            uid: defaults.uid,
            gid: defaults.gid,
            nlink: 2,
            rdev: 0,
            size_bytes: 0,
            blocks: 0,
            atime: self.attached_at,
            mtime: self.attached_at,
            ctime: self.attached_at,
            btime: self.attached_at,
        }
    }

    /// Returns the bytes of memory of what the kernel references, and of the listings that it caches.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.nodes().memory_bytes() + self.listings.memory_bytes()
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Nodes {
    fn memory_bytes(&self) -> usize {
        self.by_name.len() * FILE_BYTES + self.by_ino.len() * DIRECTORY_BYTES
    }

    /// Records that a file is shown at a place.
    fn record_shown(&mut self, ino: Ino, place: DentryKey) {
        self.by_name.insert(place.clone(), ino);
        if let Some(before) = self.files.insert(ino, place)
            && self.files.get(&ino) != Some(&before)
        {
            let all = self.before.entry(ino).or_default();
            if !all.contains(&before) {
                all.push(before);
            }
        }
    }

    fn forget_file(&mut self, ino: Ino) {
        let before = self.before.remove(&ino).into_iter().flatten();
        for place in self.files.remove(&ino).into_iter().chain(before) {
            if self.by_name.get(&place) == Some(&ino) {
                self.by_name.remove(&place);
            }
        }
    }

    /// Returns the number of a directory at this place: the present one, or one that is free.
    fn number(&self, place: &DentryKey) -> Ino {
        if let Some(ino) = self.by_place.get(place) {
            return *ino;
        }
        let mut hasher = DefaultHasher::new();
        (place.0.0, place.1.as_bytes()).hash(&mut hasher);
        let mut number = hasher.finish();
        loop {
            let ino = Ino(number | DERIVED_BIT);
            if ino.0 != DERIVED_BIT && !self.by_ino.contains_key(&ino) {
                return ino;
            }
            number = number.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derived::{DerivedEntry, Placed};
    use std::time::Duration;

    #[derive(Debug)]
    struct Nothing;

    #[async_trait::async_trait]
    impl Derived for Nothing {
        async fn find(&self, _: &[Name]) -> Result<Option<DerivedEntry>> {
            Ok(None)
        }
        async fn list(&self, _: &[Name], _: Option<&Name>, _: usize) -> Result<Vec<(Name, DerivedEntry)>> {
            Ok(Vec::new())
        }
        async fn place(&self, _: &[Name]) -> Result<Placed> {
            Err(Error::NOT_FOUND)
        }
        async fn make_directory(&self, _: &[Name]) -> Result<()> {
            Ok(())
        }
        async fn remove_directory(&self, _: &[Name]) -> Result<()> {
            Ok(())
        }
        async fn rename(&self, _: &[Name], _: &[Name]) -> Result<()> {
            Ok(())
        }
        fn recency(&self, _: &[Name]) -> Duration {
            Duration::ZERO
        }
        fn lifetime(&self, _: &[Name]) -> Duration {
            Duration::ZERO
        }
        async fn version(&self, _: &[Name]) -> Result<u64> {
            Ok(0)
        }
    }

    fn name(text: &str) -> Name {
        Name::try_from(text).unwrap()
    }

    #[test]
    fn a_renamed_directory_keeps_its_number_and_its_old_place_gets_another() {
        let views =
            DerivedDirectories::new(Arc::new(Nothing), Some(name(".views")), None, Timestamp::default());
        let a = views.refer((views.root, name("a")));
        let below = views.refer((a, name("below")));
        assert!(is_derived(a) && is_derived(views.root) && a != views.root);
        assert_eq!(views.refer((views.root, name("a"))), a);
        views.rename(&(views.root, name("a")), &(views.root, name("b")));
        assert_eq!(views.path(below).unwrap(), [name("b"), name("below")]);
        let other = views.refer((views.root, name("a")));
        assert!(other != a && views.number(&(views.root, name("b"))) == a);
        views.forget(a, 2);
        assert!(views.path(a).is_err() && views.path(other).is_ok());
    }

    #[test]
    fn an_unreferenced_number_is_stable() {
        let views = DerivedDirectories::new(Arc::new(Nothing), None, None, Timestamp::default());
        let place = (Ino::ROOT, name("a"));
        let listed = views.number(&place);
        assert_eq!(views.refer(place.clone()), listed);
        views.forget(listed, 1);
        assert_eq!(views.refer(place), listed);
    }
}
