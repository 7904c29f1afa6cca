//! Listing a volume named by inode in the order of its keys.
//!
//! The namespace keeps the names of each directory together; keys sort across directories. So what lies ahead is a heap
//! of entries by their texts: the first of them is the next of the listing, or is replaced by what is in it. What one
//! directory adds comes in batches, so that memory does not grow with it.
//!
//! Invariant: nothing below a common prefix is looked at, but to see whether anything is there.

use bytes::Bytes;
use meta::{Dentry, FsError, Ino, Kind, Name};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use store::listing::{PAGE_ENTRIES_MAX, Scan, token_after};
use store::names::{self, KeyPrefix};
use store::{KEY_BYTES_MAX, ListEntry, ListPage, ListRequest, ObjectKey, StoreError};

use crate::bucket::sort_keys;
use crate::layout::is_reserved;
use crate::objects::Objects;
use crate::objects::description::Record;
use crate::objects::errors::about;

/// Entries of one directory taken at once.
const BATCH: usize = 256;
/// Sorts after every name that begins like a text.
const BEYOND: [u8; 8] = [0xff; 8];

/// A directory and the keys in it.
#[derive(Debug, Clone)]
struct Level {
    dir: Ino,
    prefix: KeyPrefix,
}

#[derive(Debug)]
enum What {
    /// An object.
    Object(Ino),
    /// A directory.
    Inside(Level),
    /// What follows in a directory after the text.
    More(Level),
}

/// What lies ahead at a text.
#[derive(Debug)]
struct Ahead {
    text: Vec<u8>,
    /// Of several with one text: what has its plain name, what lies beside, what follows.
    rank: u8,
    what: What,
}

impl PartialEq for Ahead {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Ahead {}

impl PartialOrd for Ahead {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The first text is the greatest, as the heap asks for it.
impl Ord for Ahead {
    fn cmp(&self, other: &Self) -> Ordering {
        (&other.text, other.rank).cmp(&(&self.text, self.rank))
    }
}

/// An entry of the page to be.
#[derive(Debug)]
enum Entry {
    Object(Vec<u8>, Ino),
    Prefix(Vec<u8>),
}

struct Walk<'o> {
    objects: &'o Objects,
    scan: Scan,
    ahead: BinaryHeap<Ahead>,
    entries: Vec<Entry>,
    /// The last text that was looked at as an entry.
    last: Option<Vec<u8>>,
}

impl Objects {
    pub(in crate::objects) async fn list_named(&self, request: ListRequest) -> store::Result<ListPage> {
        let scan = Scan::new(request, PAGE_ENTRIES_MAX)?;
        let root = Level { dir: self.base_dir()?, prefix: KeyPrefix::root(b"") };
        let mut walk =
            Walk { objects: self, scan, ahead: BinaryHeap::new(), entries: Vec::new(), last: None };
        if walk.scan.limit == 0 {
            return Ok(ListPage::default());
        }
        walk.enter(&root)?;
        while walk.entries.len() <= walk.scan.limit
            && let Some(next) = walk.ahead.pop()
            && !walk.is_beyond(&next.text)
        {
            walk.step(next)?;
            if walk.entries.len().is_multiple_of(BATCH) {
                tokio::task::coop::consume_budget().await;
            }
        }
        walk.page()
    }

    fn describe(&self, entry: &Entry, inode: Option<meta::Inode>) -> store::Result<Option<ListEntry>> {
        match (entry, inode) {
            (Entry::Prefix(text), _) => Ok(Some(ListEntry::Prefix(Bytes::copy_from_slice(text)))),
            (Entry::Object(..), None) => Ok(None),
            (Entry::Object(text, _), Some(inode)) => {
                let key = ObjectKey::new(text.clone())?;
                let identity = Record::read(&self.fs.names, inode.ino)
                    .and_then(|record| self.identity(&key, &inode, &record));
                match identity {
                    Ok((object, size_bytes)) => Ok(Some(ListEntry::Object { object, size_bytes })),
                    Err(FsError::NotFound) => Ok(None),
                    Err(error) => Err(unread(error)),
                }
            }
        }
    }
}

impl Walk<'_> {
    /// Whether nothing that follows a text belongs to the listing.
    fn is_beyond(&self, text: &[u8]) -> bool {
        text > &*self.scan.prefix && !text.starts_with(&self.scan.prefix)
    }

    fn step(&mut self, next: Ahead) -> store::Result<()> {
        match next.what {
            What::Object(ino) => self.see(next.text, ino),
            What::More(level) => self.more(&level, &next.text),
            What::Inside(level) => self.see_directory(next.text, &level),
        }
    }

    /// An object's key.
    fn see(&mut self, text: Vec<u8>, ino: Ino) -> store::Result<()> {
        if !text.starts_with(&self.scan.prefix) {
            return Ok(());
        }
        match self.scan.fold(&text).map(<[u8]>::to_vec) {
            Some(prefix) => {
                if self.is_new(&prefix) {
                    self.entries.push(Entry::Prefix(prefix));
                }
            }
            None => {
                if self.is_new(&text) {
                    self.entries.push(Entry::Object(text, ino));
                }
            }
        }
        Ok(())
    }

    /// Whether a text belongs on the page, and was not there yet.
    fn is_new(&mut self, text: &[u8]) -> bool {
        let is_new = self.scan.is_after(text) && self.last.as_deref() != Some(text);
        self.last = Some(text.to_vec());
        is_new
    }

    fn see_directory(&mut self, text: Vec<u8>, level: &Level) -> store::Result<()> {
        let has_prefix = text.starts_with(&self.scan.prefix);
        if !has_prefix && !self.scan.prefix.starts_with(&text) || self.is_before(&text) {
            return Ok(());
        }
        let folded = if has_prefix { self.scan.fold(&text).map(<[u8]>::to_vec) } else { None };
        if let Some(prefix) = folded {
            let is_known = self.last.as_ref() == Some(&prefix) || !self.scan.is_after(&prefix);
            if !is_known && self.has_keys(level)? && self.is_new(&prefix) {
                self.entries.push(Entry::Prefix(prefix));
            }
            return Ok(());
        }
        if has_prefix && level.prefix.marker_key().is_some() && self.has_marker(level.dir)? {
            self.see(text, level.dir)?;
        }
        self.enter(level)
    }

    /// Whether everything that begins with a text comes before the page.
    fn is_before(&self, text: &[u8]) -> bool {
        self.scan.after.as_ref().is_some_and(|after| text < &**after && !after.starts_with(text))
    }

    /// The first entries of a directory that the page can begin with.
    fn enter(&mut self, level: &Level) -> store::Result<()> {
        let inside = level.prefix.as_bytes();
        let begins = |text: &[u8], is_prefix: bool| {
            let rest = text.strip_prefix(inside).filter(|rest| !rest.is_empty())?;
            let slash = rest.iter().position(|byte| *byte == b'/');
            Some(match slash {
                // The directory that goes on there comes first.
                Some(at) => before(&rest[..=at]),
                None if is_prefix => before(rest),
                None => rest.to_vec(),
            })
        };
        let after = self.scan.after.as_ref().and_then(|after| begins(after, false)).unwrap_or_default();
        let prefix = begins(&self.scan.prefix, true).unwrap_or_default();
        let from = after.max(prefix);
        if !from.is_empty() {
            self.push_continued(level, &from)?;
        }
        self.more(level, &[inside, &from].concat())
    }

    /// Names too long for the directory go on in others, which may have begun before.
    fn push_continued(&mut self, level: &Level, from: &[u8]) -> store::Result<()> {
        for entry in sort_keys::other_escapes(&self.objects.fs.names, level.dir).map_err(failed)? {
            if entry.sort_key.as_slice() <= from && names::is_continued(entry.name.as_bytes()) {
                self.push(level, &entry.name, entry.dentry, &entry.sort_key);
            }
        }
        Ok(())
    }

    /// The next entries of a directory after a text.
    fn more(&mut self, level: &Level, text: &[u8]) -> store::Result<()> {
        let after = &text[level.prefix.as_bytes().len()..];
        let entries = sort_keys::entries_between(&self.objects.fs.names, level.dir, after, None, BATCH)
            .map_err(failed)?;
        let Some(last) = entries.last().map(|entry| entry.sort_key.clone()) else { return Ok(()) };
        for entry in entries {
            self.push(level, &entry.name, entry.dentry, &entry.sort_key);
        }
        let text = [level.prefix.as_bytes(), &last].concat();
        self.ahead.push(Ahead { text, rank: u8::MAX, what: What::More(level.clone()) });
        Ok(())
    }

    fn push(&mut self, level: &Level, name: &Name, dentry: Dentry, text: &[u8]) {
        if is_reserved(level.dir, name.as_bytes()) {
            return;
        }
        let text = [level.prefix.as_bytes(), text].concat();
        let rank = u8::from(names::plain(name.as_bytes()).is_some());
        if let Some(what) = entry_of(level, name, dentry, &text) {
            self.ahead.push(Ahead { text, rank, what });
        }
    }

    fn has_marker(&self, dir: Ino) -> store::Result<bool> {
        match self.objects.has_marker(dir) {
            Err(FsError::NotFound) => Ok(false),
            has_marker => has_marker.map_err(unread),
        }
    }

    /// Whether anything in a directory is an object.
    fn has_keys(&self, level: &Level) -> store::Result<bool> {
        if level.prefix.marker_key().is_some() && self.has_marker(level.dir)? {
            return Ok(true);
        }
        let mut after = Vec::new();
        loop {
            let entries = sort_keys::entries_between(&self.objects.fs.names, level.dir, &after, None, BATCH)
                .map_err(failed)?;
            let Some(last) = entries.last() else { return Ok(false) };
            after.clone_from(&last.sort_key);
            for entry in &entries {
                let text = [level.prefix.as_bytes(), &entry.sort_key].concat();
                let has = match entry_of(level, &entry.name, entry.dentry, &text) {
                    Some(What::Object(_)) => true,
                    Some(What::Inside(inside)) => self.has_keys(&inside)?,
                    _ => false,
                };
                if has {
                    return Ok(true);
                }
            }
        }
    }

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
        let inodes = self.objects.fs.names.inodes(&inos).map_err(unread)?;
        let mut entries = Vec::with_capacity(self.entries.len());
        for (entry, inode) in self.entries.iter().zip(inodes) {
            let inode = inode.filter(|inode| inode.is_dir() || self.objects.is_object(inode));
            entries.extend(self.objects.describe(entry, inode)?);
        }
        Ok(ListPage { entries, next })
    }
}

/// What an entry is in a listing; `None` for what no key leads to.
fn entry_of(level: &Level, name: &Name, dentry: Dentry, text: &[u8]) -> Option<What> {
    let leads_back = || match level.prefix.entry(text) {
        Some(names::Entry::Object(plain)) => {
            *plain == *name.as_bytes() || names::beside(&plain) == name.as_bytes()
        }
        Some(names::Entry::Directory(plain)) => *plain == *name.as_bytes(),
        _ => false,
    };
    let is_odd = name.as_bytes().starts_with(b"%") || level.prefix.marker_key().is_none();
    match dentry.kind {
        Kind::File | Kind::Symlink => {
            let is_key = text.len() <= KEY_BYTES_MAX && (!is_odd || leads_back());
            is_key.then_some(What::Object(dentry.ino))
        }
        Kind::Directory => {
            let prefix = level.prefix.child_dir(name.as_bytes()).ok()?;
            let is_key = prefix.as_bytes().len() <= KEY_BYTES_MAX
                && (!is_odd || names::is_continued(name.as_bytes()) || leads_back());
            is_key.then_some(What::Inside(Level { dir: dentry.ino, prefix }))
        }
        _ => None,
    }
}

/// What no text between lies before a text of a directory.
fn before(text: &[u8]) -> Vec<u8> {
    let Some((last, rest)) = text.split_last() else { return Vec::new() };
    match last.checked_sub(1) {
        Some(lower) => [rest, &[lower], &BEYOND].concat(),
        None => rest.to_vec(),
    }
}

fn failed(error: crate::Error) -> StoreError {
    match error {
        crate::Error::Namespace(error) => unread(error),
        error => about(&any_key())(error),
    }
}

fn unread(error: FsError) -> StoreError {
    match error {
        FsError::Corrupt(what) => StoreError::Corrupt(what),
        error => StoreError::Unavailable(error.to_string()),
    }
}

/// Errors of a listing are about no key.
fn any_key() -> ObjectKey {
    match ObjectKey::try_from("/") {
        Ok(key) => key,
        Err(_) => unreachable!("it has one byte"),
    }
}
