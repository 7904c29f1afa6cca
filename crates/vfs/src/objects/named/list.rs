//! Listing a volume named by inode in the order of its keys.
//!
//! The namespace stores the names of each directory together, but keys sort across directories. The listing merges them with a
//! heap of items by key: the smallest item is the next entry, or is replaced by its contents. A directory adds its entries in
//! batches, so memory does not grow with its size.
//!
//! Invariant: below a common prefix nothing is read, except to check whether there is any object.

use bytes::Bytes;
use meta::{Dentry, FsError, Ino, Kind, Name};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use store::listing::{PAGE_ENTRIES_MAX, Scan, token_after};
use store::names::{self, KeyPrefix};
use store::{KEY_BYTES_MAX, ListEntry, ListPage, ListRequest, ListedObject, ObjectKey, StoreError};

use super::NamedObjects;
use crate::bucket::sort_keys;
use crate::layout::is_reserved;
use crate::objects::description::Record;
use crate::objects::errors::error_about;

/// Entries of one directory per batch.
const BATCH: usize = 256;
/// Suffix that sorts after every continuation of a key.
const BEYOND: [u8; 8] = [0xff; 8];

/// A directory and the prefix of its keys.
#[derive(Debug, Clone)]
struct Level {
    dir: Ino,
    prefix: KeyPrefix,
}

#[derive(Debug)]
enum ItemKind {
    /// An object.
    Object(Ino),
    /// A directory.
    Inside(Level),
    /// The rest of a directory after the item's key.
    More(Level),
}

/// An item of the heap.
#[derive(Debug)]
struct Item {
    /// Key, or beginning of keys, by which items are ordered.
    text: Vec<u8>,
    /// Order of items with equal keys: plain name, shadowed name, rest of a directory.
    rank: u8,
    kind: ItemKind,
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Item {}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Reverses the order, because the heap returns the greatest item.
impl Ord for Item {
    fn cmp(&self, other: &Self) -> Ordering {
        (&other.text, other.rank).cmp(&(&self.text, self.rank))
    }
}

/// An entry of the page.
#[derive(Debug)]
enum Entry {
    Object(Vec<u8>, Ino),
    Prefix(Vec<u8>),
}

struct Merge<'o> {
    objects: &'o NamedObjects,
    scan: Scan,
    heap: BinaryHeap<Item>,
    entries: Vec<Entry>,
    /// The last key or common prefix that was considered as an entry.
    last: Option<Vec<u8>>,
}

impl NamedObjects {
    pub(super) async fn list(&self, request: ListRequest) -> store::Result<ListPage> {
        let scan = Scan::new(request, PAGE_ENTRIES_MAX)?;
        let root = Level { dir: self.keys.base_dir()?, prefix: KeyPrefix::root(b"") };
        let mut merge =
            Merge { objects: self, scan, heap: BinaryHeap::new(), entries: Vec::new(), last: None };
        if merge.scan.limit == 0 {
            return Ok(ListPage::default());
        }
        merge.add_directory(&root)?;
        while merge.entries.len() <= merge.scan.limit
            && let Some(next) = merge.heap.pop()
            && !merge.is_beyond(&next.text)
        {
            merge.step(next)?;
            if merge.entries.len().is_multiple_of(BATCH) {
                tokio::task::coop::consume_budget().await;
            }
        }
        merge.page()
    }

    fn describe(
        &self,
        entry: &Entry,
        inode: Option<meta::Inode>,
        with_attributes: bool,
    ) -> store::Result<Option<ListEntry>> {
        match (entry, inode) {
            (Entry::Prefix(text), _) => Ok(Some(ListEntry::Prefix(Bytes::copy_from_slice(text)))),
            (Entry::Object(..), None) => Ok(None),
            (Entry::Object(text, _), Some(inode)) => {
                let key = ObjectKey::new(text.clone())?;
                let listed = match with_attributes {
                    true => self.keys.meta_of(&key, &inode).map(|(meta, _)| ListedObject::of(meta, true)),
                    false => Record::read(self.fs.names.tables(), inode.ino)
                        .and_then(|record| self.keys.identity(&key, &inode, &record))
                        .map(|(object, size_bytes)| ListedObject::new(object, size_bytes)),
                };
                match listed {
                    Ok(listed) => Ok(Some(ListEntry::Object(listed))),
                    Err(FsError::NotFound) => Ok(None),
                    Err(error) => Err(read_error(error)),
                }
            }
        }
    }
}

impl Merge<'_> {
    /// Returns whether neither this key nor any later one belongs to the listing.
    fn is_beyond(&self, text: &[u8]) -> bool {
        text > &*self.scan.prefix && !text.starts_with(&self.scan.prefix)
    }

    /// Handles the first item of the heap.
    fn step(&mut self, next: Item) -> store::Result<()> {
        match next.kind {
            ItemKind::Object(ino) => self.add_object(next.text, ino),
            ItemKind::More(level) => self.add_batch(&level, &next.text),
            ItemKind::Inside(level) => self.visit_directory(next.text, &level),
        }
    }

    /// Handles the key of an object.
    fn add_object(&mut self, text: Vec<u8>, ino: Ino) -> store::Result<()> {
        if !text.starts_with(&self.scan.prefix) {
            return Ok(());
        }
        match self.scan.fold(&text).map(<[u8]>::to_vec) {
            Some(prefix) => {
                if self.advance_to(&prefix) {
                    self.entries.push(Entry::Prefix(prefix));
                }
            }
            None => {
                if self.advance_to(&text) {
                    self.entries.push(Entry::Object(text, ino));
                }
            }
        }
        Ok(())
    }

    /// Returns whether a text belongs on the page and is not a repetition, and notes it.
    fn advance_to(&mut self, text: &[u8]) -> bool {
        let is_new = self.scan.is_after(text) && self.last.as_deref() != Some(text);
        self.last = Some(text.to_vec());
        is_new
    }

    fn visit_directory(&mut self, text: Vec<u8>, level: &Level) -> store::Result<()> {
        let has_prefix = text.starts_with(&self.scan.prefix);
        if !has_prefix && !self.scan.prefix.starts_with(&text) || self.is_before(&text) {
            return Ok(());
        }
        let folded = if has_prefix { self.scan.fold(&text).map(<[u8]>::to_vec) } else { None };
        if let Some(prefix) = folded {
            let is_known = self.last.as_ref() == Some(&prefix) || !self.scan.is_after(&prefix);
            if !is_known && self.has_keys(level)? && self.advance_to(&prefix) {
                self.entries.push(Entry::Prefix(prefix));
            }
            return Ok(());
        }
        if has_prefix && level.prefix.marker_key().is_some() && self.has_marker(level.dir)? {
            self.add_object(text, level.dir)?;
        }
        self.add_directory(level)
    }

    /// Returns whether all keys with this prefix come before the page.
    fn is_before(&self, text: &[u8]) -> bool {
        self.scan.after.as_ref().is_some_and(|after| text < &**after && !after.starts_with(text))
    }

    /// Adds the first batch of a directory's entries that can be on the page.
    fn add_directory(&mut self, level: &Level) -> store::Result<()> {
        let inside = level.prefix.as_bytes();
        let begins = |text: &[u8], is_prefix: bool| {
            let rest = text.strip_prefix(inside).filter(|rest| !rest.is_empty())?;
            let slash = rest.iter().position(|byte| *byte == b'/');
            Some(match slash {
                // The directory that continues there comes first.
                Some(at) => predecessor(&rest[..=at]),
                None if is_prefix => predecessor(rest),
                None => rest.to_vec(),
            })
        };
        let after = self.scan.after.as_ref().and_then(|after| begins(after, false)).unwrap_or_default();
        let prefix = begins(&self.scan.prefix, true).unwrap_or_default();
        let from = after.max(prefix);
        if !from.is_empty() {
            self.push_continued(level, &from)?;
        }
        self.add_batch(level, &[inside, &from].concat())
    }

    /// Adds directories of continued (overlong) names, whose keys may begin before the page.
    fn push_continued(&mut self, level: &Level, from: &[u8]) -> store::Result<()> {
        let continued = sort_keys::continued_around(self.objects.fs.names.tables(), level.dir, from);
        for entry in continued.map_err(listing_error)? {
            self.push(level, &entry.name, entry.dentry, &entry.sort_key);
        }
        Ok(())
    }

    /// Adds the next batch of a directory's entries after a key.
    fn add_batch(&mut self, level: &Level, text: &[u8]) -> store::Result<()> {
        let after = &text[level.prefix.as_bytes().len()..];
        let entries =
            sort_keys::entries_between(self.objects.fs.names.tables(), level.dir, after, None, BATCH)
                .map_err(listing_error)?;
        let Some(last) = entries.last().map(|entry| entry.sort_key.clone()) else { return Ok(()) };
        for entry in entries {
            self.push(level, &entry.name, entry.dentry, &entry.sort_key);
        }
        let text = [level.prefix.as_bytes(), &last].concat();
        self.heap.push(Item { text, rank: u8::MAX, kind: ItemKind::More(level.clone()) });
        Ok(())
    }

    /// Adds a name to the heap, unless it is reserved.
    fn push(&mut self, level: &Level, name: &Name, dentry: Dentry, text: &[u8]) {
        if is_reserved(level.dir, name.as_bytes()) {
            return;
        }
        let text = [level.prefix.as_bytes(), text].concat();
        let rank = u8::from(names::plain(name.as_bytes()).is_some());
        if let Some(kind) = entry_of(level, name, dentry, &text) {
            self.heap.push(Item { text, rank, kind });
        }
    }

    fn has_marker(&self, dir: Ino) -> store::Result<bool> {
        match self.objects.keys.has_marker(dir) {
            Err(FsError::NotFound) => Ok(false),
            has_marker => has_marker.map_err(read_error),
        }
    }

    /// Returns whether a directory contains any object.
    fn has_keys(&self, level: &Level) -> store::Result<bool> {
        if level.prefix.marker_key().is_some() && self.has_marker(level.dir)? {
            return Ok(true);
        }
        let mut after = Vec::new();
        loop {
            let entries =
                sort_keys::entries_between(self.objects.fs.names.tables(), level.dir, &after, None, BATCH)
                    .map_err(listing_error)?;
            let Some(last) = entries.last() else { return Ok(false) };
            after.clone_from(&last.sort_key);
            for entry in &entries {
                let text = [level.prefix.as_bytes(), &entry.sort_key].concat();
                let has = match entry_of(level, &entry.name, entry.dentry, &text) {
                    Some(ItemKind::Object(_)) => true,
                    Some(ItemKind::Inside(inside)) => self.has_keys(&inside)?,
                    _ => false,
                };
                if has {
                    return Ok(true);
                }
            }
        }
    }

    /// Returns the entries as a page, with the position of the next one if there are more.
    fn page(mut self) -> store::Result<ListPage> {
        let has_more = self.entries.len() > self.scan.limit;
        self.entries.truncate(self.scan.limit);
        let text = |entry: &Entry| match entry {
            Entry::Object(text, _) | Entry::Prefix(text) => token_after(text),
        };
        let next = self.entries.last().filter(|_| has_more).map(text);
        let inos: Vec<Ino> = self
            .entries
            .iter()
            .map(|entry| match entry {
                Entry::Object(_, ino) => *ino,
                Entry::Prefix(_) => Ino::ROOT,
            })
            .collect();
        let inodes = self.objects.fs.names.tables().inodes(&inos).map_err(read_error)?;
        let mut entries = Vec::with_capacity(self.entries.len());
        for (entry, inode) in self.entries.iter().zip(inodes) {
            let inode = inode.filter(|inode| inode.is_dir() || self.objects.keys.is_object(inode));
            entries.extend(self.objects.describe(entry, inode, self.scan.with_attributes)?);
        }
        Ok(ListPage { entries, next })
    }
}

/// Returns the item of a directory entry; `None` if no key leads to it.
fn entry_of(level: &Level, name: &Name, dentry: Dentry, text: &[u8]) -> Option<ItemKind> {
    let leads_back = || match level.prefix.entry(text) {
        Some(names::Entry::Object(plain)) => {
            *plain == *name.as_bytes() || names::colliding(&plain) == name.as_bytes()
        }
        Some(names::Entry::Directory(plain)) => *plain == *name.as_bytes(),
        _ => false,
    };
    let is_odd = name.as_bytes().starts_with(b"%") || level.prefix.marker_key().is_none();
    match dentry.kind {
        Kind::File | Kind::Symlink => {
            let is_key = text.len() <= KEY_BYTES_MAX && (!is_odd || leads_back());
            is_key.then_some(ItemKind::Object(dentry.ino))
        }
        Kind::Directory => {
            let prefix = level.prefix.child_dir(name.as_bytes()).ok()?;
            let is_key = prefix.as_bytes().len() <= KEY_BYTES_MAX
                && (!is_odd || names::is_continued(name.as_bytes()) || leads_back());
            is_key.then_some(ItemKind::Inside(Level { dir: dentry.ino, prefix }))
        }
        _ => None,
    }
}

/// Returns a text that sorts before `text`, with no name between the two.
fn predecessor(text: &[u8]) -> Vec<u8> {
    let Some((last, rest)) = text.split_last() else { return Vec::new() };
    match last.checked_sub(1) {
        Some(lower) => [rest, &[lower], &BEYOND].concat(),
        None => rest.to_vec(),
    }
}

fn listing_error(error: crate::Error) -> StoreError {
    match error {
        crate::Error::Namespace(error) => read_error(error),
        error => error_about(&any_key())(error),
    }
}

fn read_error(error: FsError) -> StoreError {
    match error {
        FsError::Corrupt(kind) => StoreError::Corrupt(kind),
        error => StoreError::Unavailable(error.to_string()),
    }
}

/// Returns a placeholder key for errors of a listing.
fn any_key() -> ObjectKey {
    match ObjectKey::try_from("/") {
        Ok(key) => key,
        Err(_) => unreachable!("'/' is a valid key"),
    }
}
