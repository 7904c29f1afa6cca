//! Listing a page of keys: a walk through the levels in byte order, from the page's beginning.
//!
//! Only the levels on the path to the page are read, and the levels below a common prefix until one object is found.
//! Only the files of returned entries are opened.

use super::place::Place;
use super::record::{OpenObject, etag_of, modified, size_bytes};
use super::snapshot::{Snapshot, has_objects};
use super::tree::{find_in, stat_regular};
use super::{Shared, errno};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use store::listing::{Scan, token_after};
use store::names::KeyPrefix;
use store::{ListEntry, ListPage, ListedObject, ObjectKey, ObjectRef, Result};

pub(super) fn page(store: &Shared, scan: &Scan) -> Result<ListPage> {
    let shown = String::from_utf8_lossy(&scan.prefix);
    Walk { store, scan, levels: Vec::new(), entries: Vec::new(), folded: None }
        .page()
        .map_err(|error| errno::about(&shown, error))
}

/// A walk through the levels, for one page.
struct Walk<'a> {
    store: &'a Shared,
    scan: &'a Scan,
    /// The levels from the one of the scan's prefix down to the current one.
    levels: Vec<Level>,
    entries: Vec<ListEntry>,
    /// The common prefix that was found last.
    folded: Option<Vec<u8>>,
}

/// A level being walked.
struct Level {
    prefix: Vec<u8>,
    /// The level's directory, opened for the first entry that is described.
    dir: Option<OwnedFd>,
    snapshot: Arc<Snapshot>,
    /// The index of the next text.
    at: usize,
}

impl Walk<'_> {
    fn page(mut self) -> Result<ListPage, Errno> {
        let slash = self.scan.prefix.iter().rposition(|&byte| byte == b'/');
        self.enter(self.scan.prefix[..slash.map_or(0, |at| at + 1)].to_vec())?;
        while let Some(text) = self.next()? {
            if !text.starts_with(&self.scan.prefix) {
                if *text > *self.scan.prefix {
                    break;
                }
                continue;
            }
            if let Some(entry) = self.visit(text)? {
                if self.entries.len() == self.scan.limit {
                    let next = self.entries.last().map(|last| token_after(last.text()));
                    return Ok(ListPage { entries: self.entries, next });
                }
                self.entries.push(entry);
            }
        }
        Ok(ListPage { entries: self.entries, next: None })
    }

    /// Returns the next key, or directory with its `/`, in order.
    fn next(&mut self) -> Result<Option<Vec<u8>>, Errno> {
        while let Some(level) = self.levels.last_mut() {
            if level.at < level.snapshot.len() {
                level.at += 1;
                return Ok(Some([&level.prefix, level.snapshot.text(level.at - 1)].concat()));
            }
            match level.snapshot.next_from() {
                Some(from) => {
                    let prefix = level.prefix.clone();
                    match self.window(&prefix, &from)? {
                        Some(snapshot) => self.resume(snapshot, &from),
                        None => drop(self.levels.pop()),
                    }
                }
                None => drop(self.levels.pop()),
            }
        }
        Ok(None)
    }

    fn resume(&mut self, snapshot: Arc<Snapshot>, from: &[u8]) {
        if let Some(level) = self.levels.last_mut() {
            level.at = snapshot.seek(from);
            level.snapshot = snapshot;
        }
    }

    /// Returns the entry that the listing shows for a text, if any. Descends into directories unless they are grouped into a
    /// common prefix.
    fn visit(&mut self, text: Vec<u8>) -> Result<Option<ListEntry>, Errno> {
        let is_dir = text.ends_with(b"/") && !self.is_marker(&text);
        if let Some(folded) = self.scan.fold(&text) {
            let known = self.folded.as_deref() == Some(folded) || !self.scan.is_after(folded);
            if known || (is_dir && !self.has_objects(&text)?) {
                return Ok(None);
            }
            let folded = folded.to_vec();
            self.folded = Some(folded.clone());
            return Ok(Some(ListEntry::Prefix(folded.into())));
        }
        if is_dir {
            self.enter(text)?;
            return Ok(None);
        }
        if self.scan.is_after(&text) { self.object(text) } else { Ok(None) }
    }

    /// Returns whether the text is the key of the current level's own marker.
    fn is_marker(&self, text: &[u8]) -> bool {
        self.levels.last().is_some_and(|level| level.prefix == text)
    }

    /// Enters a level at the first text that the scan can return.
    fn enter(&mut self, prefix: Vec<u8>) -> Result<(), Errno> {
        let Some(from) = self.first_text(&prefix) else { return Ok(()) };
        if let Some(snapshot) = self.window(&prefix, &from)? {
            let at = snapshot.seek(&from);
            self.levels.push(Level { prefix, dir: None, snapshot, at });
        }
        Ok(())
    }

    /// Returns the first text of a level that the scan can return; `None` if the whole level lies before the scan's start
    /// position.
    fn first_text(&self, prefix: &[u8]) -> Option<Vec<u8>> {
        let wanted = self.scan.prefix.strip_prefix(prefix).unwrap_or_default();
        let Some(after) = self.scan.after.as_deref().filter(|after| *after > prefix) else {
            return Some(wanted.to_vec());
        };
        let rest = after.strip_prefix(prefix)?;
        let first = match rest.iter().position(|&byte| byte == b'/') {
            Some(slash) => &rest[..=slash],
            None => rest,
        };
        Some(first.max(wanted).to_vec())
    }

    fn window(&self, prefix: &[u8], from: &[u8]) -> Result<Option<Arc<Snapshot>>, Errno> {
        self.store.snapshots.window(&self.store.tree, &*self.store.clock, prefix, from)
    }

    /// Describes an object; `None` if it was removed meanwhile.
    fn object(&mut self, key: Vec<u8>) -> Result<Option<ListEntry>, Errno> {
        let Ok(key) = ObjectKey::new(key) else { return Ok(None) };
        match self.find(&key) {
            // The record with the attributes was read for the etag.
            Ok(found) => Ok(found.map(|found| {
                ListEntry::Object(ListedObject::of(found.meta(&key), self.scan.with_attributes))
            })),
            Err(Errno::ACCESS) => self.unreadable(key),
            Err(error) => Err(error),
        }
    }

    /// Describes a file that the process has no permission to read, by its inode alone; `None` if it was removed
    /// meanwhile.
    fn unreadable(&self, key: ObjectKey) -> Result<Option<ListEntry>, Errno> {
        let place = Place::of(&key);
        for path in [place.path(), place.alternate_path()] {
            if let Some(stat) = stat_regular(self.store.tree.root(), &path)? {
                let (etag, last_modified) = (etag_of(&stat), Some(modified(&stat)));
                let object = ObjectRef { key, etag, version: None, last_modified };
                return Ok(Some(ListEntry::Object(ListedObject::new(object, size_bytes(&stat)))));
            }
        }
        Ok(None)
    }

    /// Opens an object, through the current level's directory if the object is in it; `None` if it was removed
    /// meanwhile.
    fn find(&mut self, key: &ObjectKey) -> Result<Option<OpenObject>, Errno> {
        let place = Place::of(key);
        let Some(level) = self.levels.last_mut() else { return Ok(None) };
        let Some(dirs) = Place::of_level(&level.prefix).filter(|dirs| *dirs == place.dirs) else {
            return self.store.tree.find(&place);
        };
        if level.dir.is_none() {
            level.dir = match self.store.tree.open_dir(&dirs) {
                Ok(dir) => Some(dir),
                Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
                Err(error) => return Err(error),
            };
        }
        match &level.dir {
            Some(dir) => find_in(dir.as_fd(), &place.name),
            None => Ok(None),
        }
    }

    fn has_objects(&self, prefix: &[u8]) -> Result<bool, Errno> {
        let Some(dirs) = Place::of_level(prefix) else { return Ok(false) };
        match self.store.tree.open_dir(&dirs) {
            Ok(dir) => has_objects(dir.as_fd(), &KeyPrefix::root(prefix)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(false),
            Err(Errno::ACCESS) => Ok(true),
            Err(error) => Err(error),
        }
    }
}
