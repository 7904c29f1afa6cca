//! Removal of objects of a volume named by inode, and of directories that existed only because of them.

use meta::{FsError, Ino, Name, Op, SeenName};
use store::{ObjectKey, Precondition, StoreError};

use super::keys::ResolvedKey;
use super::plan::Change;
use super::{ATTEMPTS_MAX, NamedObjects, is_race, too_many_races, unless_raced};
use crate::objects::description::{IMPLICIT, MARKER, ObjectDescription, RECORD};
use crate::objects::errors::{error_about, namespace_error_about};

impl NamedObjects {
    pub(super) async fn delete(&self, key: &ObjectKey, precondition: &Precondition) -> store::Result<()> {
        let _key_lock = self.fs.bucket.locks.key_locks().lock(&self.directory.key_to_lock(key)).await;
        for _ in 0..ATTEMPTS_MAX {
            let resolved = self.keys.resolve(key)?;
            let is_gone = match &resolved.last {
                Some(_) => self.delete_object(key, &resolved, precondition).await,
                None => self.delete_marker(key, &resolved, precondition).await,
            };
            match is_gone {
                Ok(true) => return Ok(()),
                // Its directory was removed meanwhile.
                Ok(false) | Err(StoreError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(too_many_races())
    }

    /// Deletes an object. Returns false if another operation changed the name meanwhile.
    async fn delete_object(
        &self,
        key: &ObjectKey,
        resolved: &ResolvedKey,
        precondition: &Precondition,
    ) -> store::Result<bool> {
        let taken = self
            .keys
            .find_at(resolved)
            .map_err(namespace_error_about(key))?
            .filter(|(_, inode)| self.keys.is_object(inode));
        let Some((name, inode)) = taken else {
            self.keys.check_precondition(key, precondition, None)?;
            return Ok(true);
        };
        let file = match self.fs.io.opener.open_file(inode.ino) {
            // The inode was removed meanwhile.
            Err(crate::Error::Namespace(FsError::NotFound)) => return Ok(false),
            file => file.map_err(error_about(key))?,
        };
        let outcome = {
            // The lock keeps other bytes from being published between the check and the commit.
            let _state = file.write_state.lock().await;
            self.unlink(key, (resolved.dir, &name), inode.ino, precondition)
        };
        let closed = file.close().await.map_err(error_about(key));
        let is_removed = outcome?;
        closed?;
        if is_removed {
            self.prune(resolved.dir).map_err(namespace_error_about(key))?;
            self.fs.names.delivered().await;
        }
        Ok(is_removed)
    }

    /// Removes a file's name. Returns false if another operation changed the name meanwhile.
    fn unlink(
        &self,
        key: &ObjectKey,
        (parent, name): (Ino, &Name),
        ino: Ino,
        precondition: &Precondition,
    ) -> store::Result<bool> {
        let there = self.fs.names.tables().lookup(parent, name).map_err(namespace_error_about(key))?;
        let Some(file) = there.filter(|there| there.ino == ino) else { return Ok(false) };
        self.keys.check_precondition(key, precondition, Some(&file))?;
        let mut change = Change::default();
        change.unlink(parent, name, ino);
        Ok(unless_raced(key, self.commit(&change))?.is_some())
    }

    /// Deletes the marker of a directory. A directory with contents stays without its marker.
    async fn delete_marker(
        &self,
        key: &ObjectKey,
        resolved: &ResolvedKey,
        precondition: &Precondition,
    ) -> store::Result<bool> {
        let there = self.keys.object_at(resolved).map_err(namespace_error_about(key))?;
        self.keys.check_precondition(key, precondition, there.as_ref())?;
        if there.is_none() {
            return Ok(true);
        }
        let mut change = Change::default();
        change.set_xattr(resolved.dir, IMPLICIT, bytes::Bytes::from_static(b"1"));
        let before = ObjectDescription::read(self.fs.names.tables(), resolved.dir)
            .map_err(namespace_error_about(key))?;
        change.ops.extend(before.removal_ops(resolved.dir));
        for name in self.fs.names.tables().xattrs(resolved.dir).map_err(namespace_error_about(key))? {
            if [MARKER, RECORD].contains(&&*name) {
                change.ops.push(Op::RemoveXattr { ino: resolved.dir, name });
            }
        }
        if unless_raced(key, self.commit(&change))?.is_none() {
            return Ok(false);
        }
        self.prune(resolved.dir).map_err(namespace_error_about(key))?;
        self.fs.names.delivered().await;
        Ok(true)
    }

    /// Removes a directory that existed only because of its contents, if it is empty now, and then its parents likewise.
    pub(in crate::objects) fn prune(&self, mut dir: Ino) -> Result<(), FsError> {
        let Ok(base) = self.keys.base_dir() else { return Ok(()) };
        while dir != base && dir != Ino::ROOT {
            let directory = match self.fs.names.tables().inode(dir) {
                Err(FsError::NotFound) => return Ok(()),
                directory => directory?,
            };
            let Some((parent, name)) = directory.home.clone() else { return Ok(()) };
            let change = self.plan_prune(dir, parent, &name)?;
            match self.commit(&change) {
                Ok(_) => self.fs.bucket.known.forget_removed_directory(&directory),
                Err(error) if is_race(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
            dir = parent;
        }
        Ok(())
    }

    /// Returns the removal of such a directory; its commit fails if the directory has a marker or contents. A shadowed file
    /// gets its plain name back.
    fn plan_prune(&self, dir: Ino, parent: Ino, name: &Name) -> Result<Change, FsError> {
        let mut change = Change::default();
        change.names.push(SeenName { parent, name: name.clone(), ino: dir });
        change.ops.push(Op::RemoveXattr { ino: dir, name: IMPLICIT.into() });
        change.ops.push(Op::Rmdir { parent, name: name.clone() });
        change.ops.extend(self.fs.names.op_to_unshadow(parent, name)?);
        Ok(change)
    }
}
