//! Renaming directories under path naming: everything below moves, and nobody else stores in the tree meanwhile.

use meta::{Ino, Kind};
use store::names::KeyPrefix;

use super::{ATTEMPTS_MAX, Ends};
use crate::bucket::path_locks::PathLock;
use crate::content::open_file::OpenFile;
use crate::{Error, Filesystem, Result};

/// Programs that move files copy what they cannot rename.
const TOO_LONG: Error =
    Error::new(libc::EXDEV, "paths longer than a key would come or go with this rename: copy the directory");

impl Filesystem {
    /// Moves a directory and everything below it, while no other change of its tree is under way.
    pub(super) async fn move_tree(&self, ends: &Ends) -> Result<()> {
        let _trees = self.trees_of_complete_files(ends).await?;
        self.must_be_as_found(ends)?;
        // Something may have been stored in the directory to replace before everybody had to wait.
        self.must_be_allowed(ends).await?;
        let from = self.layout.directory(&self.names, ends.source.ino)?;
        let to = self.layout.directory(&self.names, ends.to.0)?.child_dir(ends.to.1.as_bytes())?;
        match (self.layout.lists(&from), self.layout.lists(&to)) {
            (false, false) => return self.rename_directory_entry(ends),
            (true, true) => self.must_fit(ends.source.ino, &from, &to)?,
            _ => return Err(TOO_LONG),
        }
        let (_going, _coming) = self.changing(ends);
        let named = || self.rename_directory_entry(ends);
        self.mover()?.rename_tree(from.as_bytes(), to.as_bytes(), named).await?;
        self.repin_tree(ends.source.ino)
    }

    fn rename_directory_entry(&self, ends: &Ends) -> Result<()> {
        self.rename_entry(ends, self.plain_again(ends.from.0, &ends.from.1)?)
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

    /// Locks both trees of a rename when what lies under the keys of the source is complete.
    async fn trees_of_complete_files(&self, ends: &Ends) -> Result<PathLock<'_>> {
        let dir = ends.source.ino;
        for _ in 1..ATTEMPTS_MAX {
            self.complete_below(dir).await?;
            let trees = self.lock_trees(&ends.from, &ends.to).await?;
            if !self.has_incomplete_below(dir)? {
                return Ok(trees);
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
                let identity = || file.pin().0.map(|pin| pin.identity());
                let before = identity();
                file.repin(|| self.pin_of(file.ino))?;
                if let (Some(before), Some(now)) = (before, identity()) {
                    self.references.change_etag(file.ino, &before, &now);
                }
            }
        }
        Ok(())
    }
}
