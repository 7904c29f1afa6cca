//! The sorted names of a directory, kept between the pages of a listing.
//!
//! A *level* contains the keys that share a prefix up to a `/`: one directory, and the directories in which overlong
//! names continue. The names of a level are held as *texts*: an object's key without the prefix, or a directory's name
//! with a final `/`, so that a directory sorts where its keys do.
//!
//! Invariants: the number of names in a snapshot, and in all cached snapshots, is bounded by [`LIMITS`]. A cached
//! snapshot is used only while its directories have the modification times that they had when they were read, and it is
//! cached only if these times were old enough ([`SETTLED_AFTER`]).

use super::place::{MARKER, OWN_DIR, OWN_DIR_AS_KEY, Place, alternate_name, is_alternate_inside};
use super::record::modified;
use super::tree::{Kind, Tree, kind, open_child};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, FileType, RawDir, fstat, statat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use store::names::{self, Entry, KeyPrefix};
use store::{Clock, KEY_BYTES_MAX, Timestamp};

/// Limits of the cache. A name takes about 20 bytes and its length.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Maximum names of one snapshot; a larger directory is read again for each window of this many names.
    window_names: usize,
    /// Maximum names of all cached snapshots.
    cached_names: usize,
}

const LIMITS: Limits = Limits { window_names: 100_000, cached_names: 200_000 };

/// The cost of a snapshot in addition to its names, so that the number of empty snapshots is bounded too.
const SNAPSHOT_COST: usize = 64;

/// Age from which a modification time is reliable: a directory changed more recently may change again without a new
/// modification time.
const SETTLED_AFTER: Duration = Duration::from_millis(100);

const READ_BUFFER_BYTES: usize = 64 * 1024;

/// A range of consecutive texts of a level.
pub(super) struct Snapshot {
    texts: Texts,
    /// The beginning of the range, inclusive.
    from: Vec<u8>,
    /// The end of the range, inclusive; `None` for the level's end.
    to: Option<Vec<u8>>,
    stamps: Vec<Stamp>,
}

/// The state of a directory before it was read.
#[derive(PartialEq)]
struct Stamp {
    /// Path from the root.
    path: Vec<u8>,
    inode: u64,
    modified: Timestamp,
}

impl Snapshot {
    /// Returns the number of texts.
    pub(super) fn len(&self) -> usize {
        self.texts.spans.len()
    }

    /// Returns the text at an index below [`Snapshot::len`].
    pub(super) fn text(&self, at: usize) -> &[u8] {
        self.texts.get(self.texts.spans[at])
    }

    /// Returns the index of the first text that is not below `bound`.
    pub(super) fn seek(&self, bound: &[u8]) -> usize {
        self.texts.spans.partition_point(|&span| self.texts.get(span) < bound)
    }

    /// Returns the beginning of the next window of the level; `None` if this snapshot reaches the level's end.
    pub(super) fn next_from(&self) -> Option<Vec<u8>> {
        self.to.as_ref().map(|last| [last.as_slice(), b"\0"].concat())
    }

    fn covers(&self, bound: &[u8]) -> bool {
        *self.from <= *bound && self.to.as_deref().is_none_or(|last| bound <= last)
    }

    fn cost(&self) -> usize {
        self.len() + SNAPSHOT_COST
    }
}

/// Byte strings in one buffer, in the order of their spans.
#[derive(Default)]
struct Texts {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

#[derive(Clone, Copy)]
struct Span {
    start: u32,
    len: u16,
}

impl Texts {
    fn get(&self, span: Span) -> &[u8] {
        &self.bytes[span.start as usize..][..usize::from(span.len)]
    }

    fn push(&mut self, pieces: [&[u8]; 2]) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(pieces[0]);
        self.bytes.extend_from_slice(pieces[1]);
        self.spans.push(Span { start, len: (self.bytes.len() - start as usize) as u16 });
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        let get = |span: &Span| &bytes[span.start as usize..][..usize::from(span.len)];
        self.spans.sort_unstable_by(|a, b| get(a).cmp(get(b)));
        self.spans.dedup_by(|a, b| get(a) == get(b));
    }

    /// Keeps only the first `len` texts, in a new buffer without gaps.
    fn cut(&mut self, len: usize) {
        let kept_bytes = self.spans.iter().take(len).map(|span| usize::from(span.len)).sum();
        let mut kept = Self { bytes: Vec::with_capacity(kept_bytes), spans: Vec::with_capacity(len) };
        self.spans.iter().take(len).for_each(|&span| kept.push([self.get(span), b""]));
        *self = kept;
    }
}

/// The cached snapshots, by the prefix of their level.
pub(super) struct Snapshots {
    cache: Mutex<Cache>,
    limits: Limits,
}

#[derive(Default)]
struct Cache {
    by_prefix: HashMap<Vec<u8>, (u64, Arc<Snapshot>)>,
    cost: usize,
    uses: u64,
}

impl Snapshots {
    pub(super) fn new() -> Self {
        Self::with_limits(LIMITS)
    }

    fn with_limits(limits: Limits) -> Self {
        Self { cache: Mutex::default(), limits }
    }

    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the texts of the level `prefix` from `from` on; `None` if there is no such directory.
    pub(super) fn window(
        &self,
        tree: &Tree,
        clock: &dyn Clock,
        prefix: &[u8],
        from: &[u8],
    ) -> Result<Option<Arc<Snapshot>>, Errno> {
        if let Some(kept) = self.get_cached(prefix).filter(|kept| kept.covers(from) && is_current(kept, tree))
        {
            return Ok(Some(kept));
        }
        // The cached snapshot of the level, if there is one, does not cover `from` or is outdated. It would take memory beside the new one.
        self.lock().remove(prefix);
        let Some(snapshot) = read(tree, prefix, from, self.limits.window_names)? else { return Ok(None) };
        let snapshot = Arc::new(snapshot);
        if is_settled(&snapshot, clock.now()) {
            self.insert(prefix, snapshot.clone());
        }
        Ok(Some(snapshot))
    }

    fn get_cached(&self, prefix: &[u8]) -> Option<Arc<Snapshot>> {
        let mut cache = self.lock();
        cache.uses += 1;
        let uses = cache.uses;
        cache.by_prefix.get_mut(prefix).map(|(used, snapshot)| {
            *used = uses;
            snapshot.clone()
        })
    }

    fn insert(&self, prefix: &[u8], snapshot: Arc<Snapshot>) {
        let mut cache = self.lock();
        cache.uses += 1;
        cache.cost += snapshot.cost();
        let uses = cache.uses;
        if let Some((_, old)) = cache.by_prefix.insert(prefix.to_vec(), (uses, snapshot)) {
            cache.cost -= old.cost();
        }
        if cache.cost > self.limits.cached_names {
            cache.evict(self.limits.cached_names / 2);
        }
    }
}

impl Cache {
    /// Evicts the least recently used snapshots, down to a cost well below the limit, so that evictions are rare.
    fn evict(&mut self, to_cost: usize) {
        let mut by_use: Vec<_> = self.by_prefix.iter().map(|(key, (used, _))| (*used, key.clone())).collect();
        by_use.sort_unstable();
        for (_, key) in by_use {
            if self.cost <= to_cost {
                return;
            }
            self.remove(&key);
        }
    }

    fn remove(&mut self, prefix: &[u8]) {
        if let Some((_, old)) = self.by_prefix.remove(prefix) {
            self.cost -= old.cost();
        }
    }
}

fn is_current(snapshot: &Snapshot, tree: &Tree) -> bool {
    snapshot.stamps.iter().all(|stamp| {
        let path = if stamp.path.is_empty() { b"." } else { stamp.path.as_slice() };
        statat(tree.root(), path, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|now| now.st_ino == stamp.inode && modified(&now) == stamp.modified)
    })
}

fn is_settled(snapshot: &Snapshot, now: Timestamp) -> bool {
    snapshot.stamps.iter().all(|stamp| now.since(stamp.modified) > SETTLED_AFTER)
}

/// Reads the texts of a level from the file system, from `from` on, at most `names_max` of them; `None` if there is no
/// such directory.
fn read(tree: &Tree, prefix: &[u8], from: &[u8], names_max: usize) -> Result<Option<Snapshot>, Errno> {
    let Some(dirs) = Place::of_level(prefix) else { return Ok(None) };
    let dir = match tree.open_dir(&dirs) {
        Ok(dir) => dir,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut reading = LevelReader::new(prefix, from, names_max);
    reading.read(dir.as_fd(), &KeyPrefix::root(prefix), dirs.join(&b'/'))?;
    Ok(Some(reading.finish()))
}

/// A level being read.
struct LevelReader<'a> {
    prefix: &'a [u8],
    from: &'a [u8],
    names_max: usize,
    /// The last text that fits into the window, once more texts were found than fit.
    to: Option<Vec<u8>>,
    texts: Texts,
    stamps: Vec<Stamp>,
}

impl<'a> LevelReader<'a> {
    fn new(prefix: &'a [u8], from: &'a [u8], names_max: usize) -> Self {
        Self { prefix, from, names_max, to: None, texts: Texts::default(), stamps: Vec::new() }
    }

    fn read(&mut self, dir: BorrowedFd<'_>, inside: &KeyPrefix, path: Vec<u8>) -> Result<(), Errno> {
        let stat = fstat(dir)?;
        let mut continued = Vec::new();
        for_each(dir, |name, file_type| {
            let is_dir = file_type == FileType::Directory;
            if is_dir && names::is_continued(name) && !self.is_own_as_key(name) {
                continued.push(name.to_vec());
                return true;
            }
            if let Some(text) = self.text(inside, name, file_type) {
                self.push(text);
            }
            if is_dir && is_alternate_inside(name) && kind(dir, &alternate_name(name)) == Ok(Kind::File) {
                self.text(inside, name, FileType::RegularFile).into_iter().for_each(|text| self.push(text));
            }
            true
        })?;
        let path_of = |name: &[u8]| if path.is_empty() { name.to_vec() } else { [&path, name].join(&b'/') };
        for name in continued {
            let Ok(further) = inside.child_dir(&name) else { continue };
            match open_child(dir, &name) {
                Ok(child) => self.read(child.as_fd(), &further, path_of(&name))?,
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(error) => return Err(error),
            }
        }
        self.stamps.push(Stamp { path, inode: stat.st_ino, modified: modified(&stat) });
        Ok(())
    }

    fn is_own_as_key(&self, name: &[u8]) -> bool {
        self.prefix.is_empty() && name == OWN_DIR_AS_KEY
    }

    /// Returns the text of a file or directory; `None` for a name that belongs to no key.
    fn text<'n>(&self, inside: &KeyPrefix, name: &'n [u8], kind: FileType) -> Option<Text<'n>> {
        let text = text_of(self.prefix, inside, name, kind)?;
        (self.prefix.len() + text.len() <= KEY_BYTES_MAX).then_some(text)
    }

    fn push(&mut self, text: Text<'_>) {
        let pieces = text.pieces();
        let above = self.to.as_ref().is_some_and(|to| is_above(pieces, to));
        if above || !is_at_least(pieces, self.from) {
            return;
        }
        self.texts.push(pieces);
        // File systems return names in no order, so that few names are below the last one that fits after the first cuts.
        if self.texts.spans.len() > self.names_max + self.names_max / 4 {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.texts.sort();
        if self.texts.spans.len() > self.names_max {
            self.texts.cut(self.names_max);
            self.to = self.texts.spans.last().map(|&span| self.texts.get(span).to_vec());
        }
    }

    fn finish(mut self) -> Snapshot {
        self.cut();
        self.texts.bytes.shrink_to_fit();
        self.texts.spans.shrink_to_fit();
        Snapshot { texts: self.texts, from: self.from.to_vec(), to: self.to, stamps: self.stamps }
    }
}

/// A key without its level's prefix: usually the file name itself.
enum Text<'n> {
    Object(&'n [u8]),
    Directory(&'n [u8]),
    Decoded(Vec<u8>),
}

impl Text<'_> {
    fn pieces(&self) -> [&[u8]; 2] {
        match self {
            Self::Object(name) => [name, b""],
            Self::Directory(name) => [name, b"/"],
            Self::Decoded(text) => [text, b""],
        }
    }

    fn len(&self) -> usize {
        self.pieces().iter().map(|piece| piece.len()).sum()
    }
}

fn is_at_least(pieces: [&[u8]; 2], bound: &[u8]) -> bool {
    pieces.into_iter().flatten().cmp(bound).is_ge()
}

fn is_above(pieces: [&[u8]; 2], bound: &[u8]) -> bool {
    pieces.into_iter().flatten().cmp(bound).is_gt()
}

/// Returns the text of a name in the directory `inside` of the level `prefix`; `None` if the name belongs to no key.
fn text_of<'n>(prefix: &[u8], inside: &KeyPrefix, name: &'n [u8], kind: FileType) -> Option<Text<'n>> {
    let at_root = prefix.is_empty() && inside.as_bytes().is_empty();
    match kind {
        FileType::RegularFile | FileType::Directory if at_root && name == OWN_DIR => None,
        FileType::Directory if at_root && name == OWN_DIR_AS_KEY => {
            Some(Text::Decoded([OWN_DIR, b"/"].concat()))
        }
        FileType::RegularFile if is_plain(prefix, inside, name) => Some(Text::Object(name)),
        FileType::Directory if is_plain(prefix, inside, name) => Some(Text::Directory(name)),
        FileType::RegularFile => object_text(prefix, inside, name),
        FileType::Directory => directory_text(prefix, inside, name),
        _ => None,
    }
}

/// Returns whether a name is not escaped, so that it is its own text.
fn is_plain(prefix: &[u8], inside: &KeyPrefix, name: &[u8]) -> bool {
    name[0] != b'%' && inside.as_bytes().len() == prefix.len()
}

/// Decodes a file name. Returns `None` if the decoded key would have another name: then another program made the file,
/// and it is not an object.
fn object_text(prefix: &[u8], inside: &KeyPrefix, name: &[u8]) -> Option<Text<'static>> {
    let plain = names::plain(name).unwrap_or(name);
    let key = inside.child_key(name).ok()?;
    let is_its_name = match inside.entry(key.as_bytes())? {
        Entry::Object(given) => given == plain,
        Entry::Marker => plain == MARKER,
        Entry::Directory(_) => false,
    };
    is_its_name.then(|| Text::Decoded(key.as_bytes()[prefix.len()..].to_vec()))
}

fn directory_text(prefix: &[u8], inside: &KeyPrefix, name: &[u8]) -> Option<Text<'static>> {
    let further = inside.child_dir(name).ok()?;
    let is_its_name = inside.entry(further.as_bytes())? == Entry::Directory(name.to_vec());
    is_its_name.then(|| Text::Decoded(further.as_bytes()[prefix.len()..].to_vec()))
}

/// Calls `each` for the names in a directory, unordered, until `each` returns `false`.
fn for_each(dir: BorrowedFd<'_>, mut each: impl FnMut(&[u8], FileType) -> bool) -> Result<(), Errno> {
    let mut buffer = Box::<[u8]>::new_uninit_slice(READ_BUFFER_BYTES);
    let buffer: &mut [MaybeUninit<u8>] = &mut buffer;
    let mut entries = RawDir::new(dir, buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(_) => continue,
            },
            known => known,
        };
        if !each(name, kind) {
            return Ok(());
        }
    }
    Ok(())
}

/// Returns whether the level or a level below it has objects; an unreadable directory counts as having some.
pub(super) fn has_objects(dir: BorrowedFd<'_>, inside: &KeyPrefix) -> Result<bool, Errno> {
    let mut found = false;
    let mut below = Vec::new();
    for_each(dir, |name, kind| {
        match kind {
            FileType::RegularFile => found = text_of(inside.as_bytes(), inside, name, kind).is_some(),
            FileType::Directory => below.push(name.to_vec()),
            _ => {}
        }
        !found
    })?;
    for name in below {
        if found {
            break;
        }
        let Ok(further) = inside.child_dir(&name) else { continue };
        match open_child(dir, &name) {
            Ok(child) => found = has_objects(child.as_fd(), &further)?,
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(Errno::ACCESS) => found = true,
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use store::SystemClock;
    use tempfile::TempDir;

    /// A clock in the future, for which all modification times are old enough.
    #[derive(Debug)]
    struct Tomorrow;

    impl Clock for Tomorrow {
        fn now(&self) -> Timestamp {
            Timestamp(SystemClock.now().0 + 86_400_000_000_000)
        }
    }

    fn directory(files: usize) -> (TempDir, Tree) {
        let dir = TempDir::new().unwrap();
        for file in 0..files {
            fs::write(dir.path().join(format!("f{file:04}")), "").unwrap();
        }
        let tree = Tree::open(dir.path()).unwrap();
        (dir, tree)
    }

    fn window(snapshots: &Snapshots, tree: &Tree, from: &[u8]) -> Arc<Snapshot> {
        snapshots.window(tree, &Tomorrow, b"", from).unwrap().unwrap()
    }

    #[test]
    fn a_directory_larger_than_a_window_is_read_in_windows() {
        let (_dir, tree) = directory(1000);
        let snapshots = Snapshots::with_limits(Limits { window_names: 70, cached_names: 300 });
        let (mut seen, mut from) = (Vec::new(), Some(Vec::new()));
        while let Some(begin) = from {
            let snapshot = window(&snapshots, &tree, &begin);
            assert!(snapshot.len() <= 70);
            seen.extend((snapshot.seek(&begin)..snapshot.len()).map(|at| snapshot.text(at).to_vec()));
            from = snapshot.next_from();
        }
        let expected: Vec<Vec<u8>> = (0..1000).map(|file| format!("f{file:04}").into_bytes()).collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_directory_is_read_again_only_after_a_change() {
        let (dir, tree) = directory(10);
        let snapshots = Snapshots::new();
        let first = window(&snapshots, &tree, b"");
        assert!(Arc::ptr_eq(&first, &window(&snapshots, &tree, b"f0003")));
        fs::write(dir.path().join("new"), "").unwrap();
        let second = window(&snapshots, &tree, b"");
        assert_eq!((first.len(), second.len()), (10, 11));
        assert!(snapshots.window(&tree, &Tomorrow, b"missing/", b"").unwrap().is_none());
    }

    #[test]
    fn a_directory_that_changed_just_now_is_not_kept() {
        let (_dir, tree) = directory(10);
        let snapshots = Snapshots::new();
        let now = fstat(tree.root()).unwrap();
        #[derive(Debug)]
        struct At(Timestamp);
        impl Clock for At {
            fn now(&self) -> Timestamp {
                self.0
            }
        }
        snapshots.window(&tree, &At(modified(&now)), b"", b"").unwrap();
        assert_eq!(snapshots.lock().by_prefix.len(), 0);
        snapshots.window(&tree, &Tomorrow, b"", b"").unwrap();
        assert_eq!(snapshots.lock().by_prefix.len(), 1);
    }

    #[test]
    fn the_least_recently_used_snapshots_are_evicted() {
        let dir = TempDir::new().unwrap();
        for level in 0..20 {
            fs::create_dir(dir.path().join(level.to_string())).unwrap();
        }
        let tree = Tree::open(dir.path()).unwrap();
        let snapshots = Snapshots::with_limits(Limits { window_names: 10, cached_names: 4 * SNAPSHOT_COST });
        for level in 0..20 {
            snapshots.window(&tree, &Tomorrow, format!("{level}/").as_bytes(), b"").unwrap().unwrap();
            let cache = snapshots.lock();
            assert!(cache.cost <= 4 * SNAPSHOT_COST && cache.cost == cache.by_prefix.len() * SNAPSHOT_COST);
            assert!(cache.by_prefix.contains_key(format!("{level}/").as_bytes()));
        }
    }
}
