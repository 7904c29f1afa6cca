//! `RENAME_EXCHANGE` in a volume named by path.
//!
//! No store swaps two keys. Both objects are copied to keys of their own, one op swaps the names, and both files are stored at
//! their new paths. After a crash in between, the next mount stores them there.

use meta::{Ino, Inode, Kind, Name, Op, Origin, RenameHow};
use store::{CopyOptions, ObjectKey, ObjectRef};

use crate::content::open_file::OpenFile;
use crate::content::write::{When, WriteState};
use crate::layout::stored_at;
use crate::ops::rename::{Renamer, lock_both};
use crate::{Error, Result};

/// Directory and name.
type DentryKey = (Ino, Name);

impl Renamer {
    /// Swaps two names, which must exist. Fails with EINVAL for directories, which have too many keys.
    pub(crate) async fn exchange(&self, origin: Origin, from: DentryKey, to: DentryKey) -> Result<()> {
        let source = self.discovery.must(self.discovery.find(from.0, &from.1).await?)?;
        let target = self.discovery.must(self.discovery.find(to.0, &to.1).await?)?;
        if source.ino == target.ino {
            return Ok(());
        }
        if source.kind == Kind::Directory || target.kind == Kind::Directory {
            return Err(Error::new(
                libc::EINVAL,
                "directories cannot be exchanged in a volume named by path",
            ));
        }
        let source = self.opener.open_file(source.ino)?;
        let outcome = match self.opener.open_file(target.ino) {
            Ok(target) => {
                let exchanged = self.exchange_files(origin, (from, &source), (to, &target)).await;
                exchanged.and(target.close().await)
            }
            Err(error) => Err(error),
        };
        outcome.and(source.close().await)
    }

    /// Swaps two open files, which are locked so that neither is published, moved or removed meanwhile.
    async fn exchange_files(
        &self,
        origin: Origin,
        (from, source): (DentryKey, &OpenFile),
        (to, target): (DentryKey, &OpenFile),
    ) -> Result<()> {
        let (mut state, replaced) = lock_both(source, Some(target)).await;
        let Some((_, mut other_state)) = replaced else { return Err(Error::NOT_FOUND) };
        self.detach_object(&from, source, &mut state).await?;
        if let Err(error) = self.detach_object(&to, target, &mut other_state).await {
            return self.publisher.show_at_path(source, &mut state).await.and(Err(error));
        }
        let swapped = {
            let _changing =
                (self.known.changes().begin(from.0, &from.1), self.known.changes().begin(to.0, &to.1));
            let op = Op::Rename { from, to, how: RenameHow::Exchange, keep: false };
            self.names.commit(origin, &op)
        };
        // The swap must be durable before objects appear at the new paths.
        self.names.sync_names_unless_write_back().await?;
        self.publisher.show_at_path(source, &mut state).await?;
        self.publisher.show_at_path(target, &mut other_state).await?;
        swapped?;
        Ok(())
    }

    /// Copies a file's object from its path to a key of its own and deletes the original.
    async fn detach_object(&self, place: &DentryKey, file: &OpenFile, state: &mut WriteState) -> Result<()> {
        if self.names.awaits_export(file.ino) {
            // An earlier export of attributes may have succeeded although its answer was lost.
            self.publisher.adopt_object_at_path(file, state).await?;
        }
        self.publisher.resolve_unconfirmed_upload(file, state).await?;
        self.content.begin_new(file, state)?;
        self.publisher.commit_locked(file, state, When::Closed).await?;
        let _path = self.locks.lock_entries(&[place]).await?;
        let (dir, name) = place;
        if self.names.tables().entry(*dir, name)?.is_none_or(|entry| entry.ino != file.ino) {
            return Err(Error::NOT_FOUND);
        }
        let inode = self.names.tables().inode(file.ino)?;
        let Some(old) = self.names.object(&inode)?.filter(|_| inode.home.is_some()) else { return Ok(()) };
        if !self.names.is_shown(*dir, name, &inode)? {
            return Ok(());
        }
        let _key_lock = self.locks.key_locks().lock(&old.key).await;
        let _changing = self.known.changes().begin(*dir, name);
        let own_copy =
            self.mount.store.copy(&old, &self.content.new_key(file.ino)?, CopyOptions::default()).await?;
        // A pending rename that completed meanwhile may have given the object another tag.
        let old = self.names.object(&self.names.tables().inode(file.ino)?)?.unwrap_or(old);
        self.names.relocate(&inode, &stored_at(&own_copy))?;
        file.repin(|| self.names.pin_of(file.ino))?;
        state.rebase(file.pin().0);
        let deleted = async {
            self.names.sync_names_unless_write_back().await?;
            self.content.delete_unless_replaced(&old).await
        };
        let deleted = deleted.await;
        match (deleted, self.names.tables().inode(file.ino)) {
            (Err(error), Ok(inode)) => {
                match self.reattach_object(&inode, &old, own_copy.key, file, state).await? {
                    true => Err(error),
                    // The deletion succeeded, only its answer was lost.
                    false => Ok(()),
                }
            }
            (deleted, _) => deleted,
        }
    }

    /// Points a file back to its path if the object there could not be deleted. Returns whether the object is still there.
    async fn reattach_object(
        &self,
        inode: &Inode,
        old: &ObjectRef,
        own_key: ObjectKey,
        file: &OpenFile,
        state: &mut WriteState,
    ) -> Result<bool> {
        let found = self.mount.store.find(&old.key).await?;
        if found.is_none_or(|found| found.object.etag != old.etag) {
            return Ok(false);
        }
        self.names.publish(inode, old, inode.size_bytes, None)?;
        file.repin(|| self.names.pin_of(file.ino))?;
        state.rebase(file.pin().0);
        self.content.discard(own_key).await;
        Ok(true)
    }
}
