//! Moving an object of a volume named by inode to another key: only a name changes.

use meta::{Name, Op, RenameHow};
use store::{ObjectKey, ObjectRef, Precondition, StoreError};

use super::plan::Change;
use super::{ATTEMPTS_MAX, NamedObjects, too_many_races, unless_raced};
use crate::objects::errors::{namespace_error_about, no_such_key};

impl NamedObjects {
    /// Moves an object. The inode keeps its number, so open handles stay valid; the previous object of the target is replaced.
    pub(super) async fn rename(
        &self,
        from: &ObjectRef,
        to: &ObjectKey,
        precondition: &Precondition,
    ) -> store::Result<()> {
        if from.key == *to {
            return Err(StoreError::Invalid("an object cannot be moved to its own key".into()));
        }
        // Locked in one order, so that two renames that swap keys do not deadlock.
        let (one, other) = (self.directory.key_to_lock(&from.key), self.directory.key_to_lock(to));
        let (first, second) = if one < other { (&one, &other) } else { (&other, &one) };
        let _first = self.fs.bucket.locks.key_locks().lock(first).await;
        let _second = match first == second {
            true => None,
            false => Some(self.fs.bucket.locks.key_locks().lock(second).await),
        };
        for _ in 0..ATTEMPTS_MAX {
            let Some((change, dir)) = self.plan_move(from, to, precondition)? else { continue };
            let Some(applied) = unless_raced(to, self.commit(&change))? else { continue };
            self.prune(dir).map_err(namespace_error_about(to))?;
            return self.finish_change(to, applied).await;
        }
        Err(too_many_races())
    }

    /// Returns the change and the directory that loses a name. `None`: the names changed meanwhile.
    fn plan_move(
        &self,
        from: &ObjectRef,
        to: &ObjectKey,
        precondition: &Precondition,
    ) -> store::Result<Option<(Change, meta::Ino)>> {
        let (source, target) = (self.keys.resolve(&from.key)?, self.keys.resolve(to)?);
        let Some(last) = &target.last else {
            return Err(no_such_key(to, "a key that ends in '/' is the marker of a directory, not a file"));
        };
        let taken = self.keys.find_at(&source).map_err(namespace_error_about(&from.key))?;
        let (name, inode) = taken
            .filter(|(_, inode)| self.keys.is_object(inode))
            .ok_or_else(|| StoreError::NotFound(from.key.clone()))?;
        self.keys.check_precondition(&from.key, &Precondition::Matches(from.etag.clone()), Some(&inode))?;
        let there = self.keys.find_at(&target).map_err(namespace_error_about(to))?;
        let shown = there.as_ref().map(|(_, inode)| inode).filter(|inode| self.keys.is_object(inode));
        self.keys.check_precondition(to, precondition, shown)?;
        let mut change = Change::default();
        let dir = self.keys.make_directories(to, &target, &mut change)?;
        let new_name = self.keys.free_name(to, &target, last, there.as_ref())?;
        if self.would_shadow(&change, source.dir, &name) {
            return Err(StoreError::Unsupported(format!("moving '{}' to a key below itself", from.key)));
        }
        if let Some((name, file)) = &there {
            change.unlink(dir, name, file.ino);
        }
        change.rename(inode.ino, (source.dir, name), (dir, new_name), RenameHow::NoReplace);
        Ok(Some((change, source.dir)))
    }

    /// Returns whether creating the target's directories would rename the object that is to be moved.
    fn would_shadow(&self, change: &Change, dir: meta::Ino, name: &Name) -> bool {
        change.ops.iter().any(|op| matches!(op, Op::Rename { from, .. } if *from == (dir, name.clone())))
    }
}
