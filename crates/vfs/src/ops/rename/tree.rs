//! Renaming directories under path naming: everything below moves, and nobody else stores under a path meanwhile.

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use meta::{Ino, Inode, Kind, Name};
use store::names::{Entry, KeyPrefix};
use store::{CopyOptions, ListEntry, ListRequest, ObjectKey, ObjectRef, Pages, Precondition};
use tokio::sync::RwLockWriteGuard;

use super::{ATTEMPTS_MAX, Ends};
use crate::layout::stored;
use crate::learn::PAGE_ENTRIES;
use crate::open_file::OpenFile;
use crate::{Error, Filesystem, Result};

/// Objects of a directory copied or deleted at the same time.
const MOVES_IN_FLIGHT_MAX: usize = 32;

/// Programs that move files copy what they cannot rename.
const TOO_LONG: Error =
    Error::new(libc::EXDEV, "paths longer than a key would come or go with this rename: copy the directory");

/// The old object and its copy.
type Moved = (ObjectRef, ObjectRef);

impl Filesystem {
    pub(super) async fn move_tree(&self, ends: &Ends) -> Result<()> {
        let moved = self.move_tree_alone(ends).await;
        if let (Err(_), Some(target)) = (&moved, &ends.target) {
            // Its marker was replaced and then taken back.
            self.store_new(target, Bytes::new(), Precondition::Absent).await.ok();
        }
        moved
    }

    /// Nobody else stores under a path meanwhile.
    async fn move_tree_alone(&self, ends: &Ends) -> Result<()> {
        let _moves = self.moves_of_complete_files(ends.source.ino).await?;
        self.must_be_as_found(ends)?;
        // Something may have been stored in the directory to replace before everybody had to wait.
        self.must_be_allowed(ends).await?;
        let from = self.layout.directory(&self.names, ends.source.ino)?;
        let to = self.layout.directory(&self.names, ends.to.0)?.child_dir(ends.to.1.as_bytes())?;
        match (self.layout.lists(&from), self.layout.lists(&to)) {
            (false, false) => return self.rename_entry(ends),
            (true, true) => self.must_fit(ends.source.ino, &from, &to)?,
            _ => return Err(TOO_LONG),
        }
        let (_going, _coming) = self.changing(ends);
        let moved = self.copy_tree_and_name(ends, &from, &to).await?;
        for (old, new) in &moved {
            self.follow(ends.source.ino, &from, old, new)?;
        }
        self.repin_tree(ends.source.ino)?;
        self.names_first().await?;
        // Collected, as a stream over the closure would not be `Send`.
        let deletes: Vec<_> = moved.iter().map(|(old, _)| self.delete_moved(old)).collect();
        futures_util::stream::iter(deletes).buffer_unordered(MOVES_IN_FLIGHT_MAX).try_collect().await
    }

    /// Everything known below a directory must be something that the bucket shows, before and afterwards.
    fn must_fit(&self, dir: Ino, from: &KeyPrefix, to: &KeyPrefix) -> Result<()> {
        for (name, entry) in self.names.entries(dir, None, usize::MAX)? {
            let fits = |prefix| self.layout.has_key(prefix, &name, entry.kind);
            if !fits(from) || !fits(to) {
                return Err(TOO_LONG);
            }
            if entry.kind == Kind::Directory {
                let below = |prefix: &KeyPrefix| prefix.child_dir(name.as_bytes());
                self.must_fit(entry.ino, &below(from)?, &below(to)?)?;
            }
        }
        Ok(())
    }

    async fn copy_tree_and_name(&self, ends: &Ends, from: &KeyPrefix, to: &KeyPrefix) -> Result<Vec<Moved>> {
        let moved = self.copy_tree(from, to).await?;
        if let Err(error) = self.rename_entry(ends) {
            self.delete_copies(&moved).await;
            return Err(error);
        }
        Ok(moved)
    }

    /// Copies everything below one prefix to another, or nothing.
    async fn copy_tree(&self, from: &KeyPrefix, to: &KeyPrefix) -> Result<Vec<Moved>> {
        let mut moved = Vec::new();
        let outcome = self.copy_pages(from, to, &mut moved).await;
        if let Err(error) = outcome {
            self.delete_copies(&moved).await;
            return Err(error);
        }
        Ok(moved)
    }

    /// Takes back what was copied for a rename that did not happen. What cannot be deleted stays beside the original.
    async fn delete_copies(&self, moved: &[Moved]) {
        let deletes: Vec<_> = moved.iter().map(|(_, new)| self.delete_moved(new)).collect();
        let deletes = futures_util::stream::iter(deletes).buffer_unordered(MOVES_IN_FLIGHT_MAX);
        deletes.collect::<Vec<_>>().await;
    }

    async fn copy_pages(&self, from: &KeyPrefix, to: &KeyPrefix, moved: &mut Vec<Moved>) -> Result<()> {
        let prefix = Bytes::copy_from_slice(from.as_bytes());
        let request = ListRequest { prefix, limit: PAGE_ENTRIES, ..ListRequest::default() };
        let mut pages = Pages::of(self.store.as_ref(), request);
        while let Some(entries) = pages.next().await? {
            let copies = entries.iter().filter_map(|entry| match entry {
                ListEntry::Object { object, .. } => Some(self.copy_below(object, from, to)),
                ListEntry::Prefix(_) => None,
            });
            let copies: Vec<_> = copies.collect();
            let copied: Vec<_> =
                futures_util::stream::iter(copies).buffer_unordered(MOVES_IN_FLIGHT_MAX).collect().await;
            let mut failed = Ok(());
            for copy in copied {
                match copy {
                    Ok(copy) => moved.push(copy),
                    Err(error) => failed = Err(error),
                }
            }
            failed?;
        }
        Ok(())
    }

    async fn copy_below(&self, object: &ObjectRef, from: &KeyPrefix, to: &KeyPrefix) -> Result<Moved> {
        let rest = &object.key.as_bytes()[from.as_bytes().len()..];
        let key = ObjectKey::new([to.as_bytes(), rest].concat()).map_err(|_| TOO_LONG)?;
        let copied = self.store.copy(object, &key, CopyOptions::default()).await?;
        Ok((object.clone(), copied))
    }

    /// A moved object that is known here may have another etag now.
    fn follow(&self, dir: Ino, from: &KeyPrefix, old: &ObjectRef, new: &ObjectRef) -> Result<()> {
        match self.known_below(dir, from, old.key.as_bytes())? {
            Some(inode) if inode.object().is_some_and(|object| object.etag == old.etag) => {
                self.relocate(&inode, &stored(new))
            }
            _ => Ok(()),
        }
    }

    /// The inode of a key below `prefix`, which is `dir`'s, if the walk there is known.
    fn known_below(&self, dir: Ino, prefix: &KeyPrefix, key: &[u8]) -> Result<Option<Inode>> {
        let (mut dir, mut prefix) = (dir, prefix.clone());
        loop {
            match prefix.entry(key) {
                Some(Entry::Marker) => return Ok(Some(self.names.inode(dir)?)),
                Some(Entry::Object(name)) => {
                    let beside = Name::new(&store::names::beside(&name)).ok();
                    let plain = self
                        .names
                        .lookup(dir, &Name::new(&name)?)?
                        .filter(|inode| inode.kind != Kind::Directory);
                    return match (plain, beside) {
                        (None, Some(beside)) => Ok(self.names.lookup(dir, &beside)?),
                        (plain, _) => Ok(plain),
                    };
                }
                Some(Entry::Directory(name)) => {
                    prefix = prefix.child_dir(&name)?;
                    let Some(inside) = self.names.entry(dir, &Name::new(&name)?)? else { return Ok(None) };
                    dir = inside.ino;
                }
                None => return Ok(None),
            }
        }
    }

    /// Everybody who stores under a path waits, and what lies under the keys of `dir` is complete.
    async fn moves_of_complete_files(&self, dir: Ino) -> Result<RwLockWriteGuard<'_, ()>> {
        for _ in 1..ATTEMPTS_MAX {
            self.complete_below(dir).await?;
            let moves = self.moves.write().await;
            if !self.has_incomplete_below(dir)? {
                return Ok(moves);
            }
        }
        Err(Error::new(libc::EBUSY, "files below the directory are written all the time"))
    }

    fn is_incomplete(&self, file: &OpenFile) -> bool {
        file.pending().is_stream || self.names.inode(file.ino).is_ok_and(|inode| inode.is_ahead())
    }

    fn has_incomplete_below(&self, dir: Ino) -> Result<bool> {
        for file in self.files.all() {
            if self.is_incomplete(&file) && self.is_inside(file.ino, dir)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn complete_below(&self, dir: Ino) -> Result<()> {
        for file in self.files.all() {
            if self.is_incomplete(&file) && self.is_inside(file.ino, dir)? {
                self.complete(&file, &mut *file.work.lock().await).await?;
            }
        }
        Ok(())
    }

    fn is_inside(&self, ino: Ino, dir: Ino) -> Result<bool> {
        match self.names.inode(ino).ok().and_then(|inode| inode.home) {
            Some((parent, _)) => self.is_below(parent, dir),
            None => Ok(false),
        }
    }

    /// Open files below a moved directory read their bytes at the new keys.
    fn repin_tree(&self, dir: Ino) -> Result<()> {
        for file in self.files.all() {
            if self.is_inside(file.ino, dir)? {
                file.repin(|| self.pin_of(file.ino))?;
                self.references.caches(file.ino, file.pin().0.map(|pin| pin.identity()).as_ref());
            }
        }
        Ok(())
    }
}
