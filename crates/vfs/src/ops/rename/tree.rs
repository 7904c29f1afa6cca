//! Renames of directories in a volume named by path: everything below moves, and no other operation stores in the tree
//! meanwhile.

use meta::{Ino, Kind};
use store::names::KeyPrefix;

use super::{ATTEMPTS_MAX, RenamePlan};
use crate::bucket::path_locks::PathLock;
use crate::content::open_file::OpenFile;
use crate::ops::rename::Renamer;
use crate::{Error, Result};

/// The error of a rename that makes or finds paths without a key. Programs that move files fall back to a copy on
/// EXDEV.
const TOO_LONG: Error = Error::new(
    libc::EXDEV,
    "some paths below are too long for a key before or after this rename: copy the directory instead",
);

impl Renamer {
    /// Moves a directory and everything below it while the trees are locked.
    pub(super) async fn move_tree(&self, plan: &RenamePlan) -> Result<()> {
        let _trees = self.lock_complete_trees(plan).await?;
        self.check_target_unchanged(plan)?;
        // Something may have been stored in the directory to replace before the lock was taken.
        self.check_allowed(plan).await?;
        let from = self.mount.layout.directory(self.names.tables(), plan.source.ino)?;
        let to =
            self.mount.layout.directory(self.names.tables(), plan.to.0)?.child_dir(plan.to.1.as_bytes())?;
        match (self.mount.layout.can_list(&from), self.mount.layout.can_list(&to)) {
            (false, false) => return self.rename_directory_entry(plan),
            (true, true) => self.check_paths_fit(plan.source.ino, &from, &to)?,
            _ => return Err(TOO_LONG),
        }
        let (_going, _coming) = self.mark_both_changing(plan);
        let replaced = self.target_precondition(plan, true).await?;
        let named = || self.rename_directory_entry(plan);
        // A loss of power must not keep the new path without the journal of renames: a file below would not be found there, and its other
        // names, which only this machine's metadata has, would be lost.
        let sync_first = !self.mount.config.write_back
            && !self.names.tables().entries(plan.source.ino, None, 1)?.is_empty();
        self.mover()?.rename_tree(from.as_bytes(), to.as_bytes(), &replaced, sync_first, named).await?;
        self.repin_tree(plan.source.ino)
    }

    /// Renames a directory in the namespace. A file that shared its old name gets its plain name back.
    fn rename_directory_entry(&self, plan: &RenamePlan) -> Result<()> {
        self.rename_entry(plan, self.names.op_to_unshadow(plan.from.0, &plan.from.1)?)
    }

    /// Fails unless the bucket can show every known entry below a directory, before and after the rename.
    fn check_paths_fit(&self, dir: Ino, from: &KeyPrefix, to: &KeyPrefix) -> Result<()> {
        for (name, entry) in self.names.tables().entries(dir, None, usize::MAX)? {
            let fits = |prefix| self.mount.layout.has_key(prefix, &name, entry.kind);
            if !fits(from) || !fits(to) {
                return Err(TOO_LONG);
            }
            if entry.kind == Kind::Directory {
                let below = |prefix: &KeyPrefix| prefix.child_dir(name.as_bytes());
                self.check_paths_fit(entry.ino, &below(from)?, &below(to)?)?;
            }
        }
        Ok(())
    }

    /// Locks both trees of a rename once the objects of all open files in the source are complete; EBUSY if they do not
    /// become complete.
    async fn lock_complete_trees(&self, plan: &RenamePlan) -> Result<PathLock<'_>> {
        let dir = plan.source.ino;
        for _ in 1..ATTEMPTS_MAX {
            self.complete_below(dir).await?;
            let trees = self.locks.lock_trees(&plan.from, &plan.to).await?;
            if !self.has_incomplete_below(dir)? {
                return Ok(trees);
            }
        }
        Err(Error::new(libc::EBUSY, "files below the directory keep being written; try again"))
    }

    /// Returns whether a file's object is not complete: parts are being uploaded, or some of the content is in deltas.
    fn is_incomplete(&self, file: &OpenFile) -> bool {
        file.pending().is_stream || self.names.tables().inode(file.ino).is_ok_and(|inode| inode.is_ahead())
    }

    /// Returns whether the object of any open file below a directory is not complete.
    fn has_incomplete_below(&self, dir: Ino) -> Result<bool> {
        for file in self.content.files().all() {
            if self.is_incomplete(&file) && self.names.is_inside(file.ino, dir)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Completes the objects of all open files below a directory.
    async fn complete_below(&self, dir: Ino) -> Result<()> {
        for file in self.content.files().all() {
            if self.is_incomplete(&file) && self.names.is_inside(file.ino, dir)? {
                self.publisher.complete_object(&file, &mut *file.write_state.lock().await).await?;
            }
        }
        Ok(())
    }

    /// Pins open files below a moved directory to their new keys.
    fn repin_tree(&self, dir: Ino) -> Result<()> {
        for file in self.content.files().all() {
            if self.names.is_inside(file.ino, dir)? {
                let identity = || file.pin().0.map(|pin| pin.identity());
                let before = identity();
                file.repin(|| self.names.pin_of(file.ino))?;
                if let (Some(before), Some(now)) = (before, identity()) {
                    self.names.references().change_etag(file.ino, &before, &now);
                }
            }
        }
        Ok(())
    }
}
