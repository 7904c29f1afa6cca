//! `RENAME_EXCHANGE` in a volume named by path.
//!
//! No store swaps two keys. Both objects are copied to keys of their own, one op swaps the names, and both files are stored at
//! their new paths. After a crash in between, the next mount stores them there.

use meta::{Ino, Inode, Kind, Name, Op, RenameHow};
use store::{CopyOptions, ObjectKey, ObjectRef};

use crate::content::open_file::OpenFile;
use crate::content::write::{When, WriteState};
use crate::layout::stored_at;
use crate::ops::rename::lock_both;
use crate::{Error, Filesystem, Result};

/// Directory and name.
type DentryKey = (Ino, Name);

impl Filesystem {
    /// Swaps two names, which must exist. Fails with EINVAL for directories, which have too many keys.
    pub(super) async fn exchange(&self, from: DentryKey, to: DentryKey) -> Result<()> {
        let source = self.must(self.find(from.0, &from.1).await?)?;
        let target = self.must(self.find(to.0, &to.1).await?)?;
        if source.ino == target.ino {
            return Ok(());
        }
        if source.kind == Kind::Directory || target.kind == Kind::Directory {
            return Err(Error::new(
                libc::EINVAL,
                "directories cannot be exchanged in a volume named by path",
            ));
        }
        let source = self.open_file(source.ino)?;
        let outcome = match self.open_file(target.ino) {
            Ok(target) => {
                let exchanged = self.exchange_files((from, &source), (to, &target)).await;
                exchanged.and(target.close().await)
            }
            Err(error) => Err(error),
        };
        outcome.and(source.close().await)
    }

    /// Swaps two open files, which are locked so that neither is published, moved or removed meanwhile.
    async fn exchange_files(
        &self,
        (from, source): (DentryKey, &OpenFile),
        (to, target): (DentryKey, &OpenFile),
    ) -> Result<()> {
        let (mut state, replaced) = lock_both(source, Some(target)).await;
        let Some((_, mut other_state)) = replaced else { return Err(Error::NOT_FOUND) };
        self.detach_object(&from, source, &mut state).await?;
        if let Err(error) = self.detach_object(&to, target, &mut other_state).await {
            return self.show_at_path(source, &mut state).await.and(Err(error));
        }
        let swapped = {
            let _changing = (self.changes.begin(from.0, &from.1), self.changes.begin(to.0, &to.1));
            let op = Op::Rename { from, to, how: RenameHow::Exchange, keep: false };
            self.names.commit(&self.ctx(), &op)
        };
        // The swap must be durable before objects appear at the new paths.
        self.sync_names_unless_write_back().await?;
        self.show_at_path(source, &mut state).await?;
        self.show_at_path(target, &mut other_state).await?;
        swapped?;
        Ok(())
    }

    /// Copies a file's object from its path to a key of its own and deletes the original.
    async fn detach_object(&self, place: &DentryKey, file: &OpenFile, state: &mut WriteState) -> Result<()> {
        if self.awaits_export(file.ino) {
            // An earlier export of attributes may have succeeded although its answer was lost.
            self.adopt_object_at_path(file, state).await?;
        }
        self.resolve_unconfirmed_upload(file, state).await?;
        self.begin_new(file, state)?;
        self.commit_locked(file, state, When::Closed).await?;
        let _path = self.lock_entries(&[place]).await?;
        let (dir, name) = place;
        if self.names.entry(*dir, name)?.is_none_or(|entry| entry.ino != file.ino) {
            return Err(Error::NOT_FOUND);
        }
        let inode = self.names.inode(file.ino)?;
        let Some(old) = self.object(&inode)?.filter(|_| inode.home.is_some()) else { return Ok(()) };
        if !self.is_shown(*dir, name, &inode)? {
            return Ok(());
        }
        let _claim = self.claims.claim(&old.key).await;
        let _changing = self.changes.begin(*dir, name);
        let beside = self.store.copy(&old, &self.content_key(file.ino)?, CopyOptions::default()).await?;
        // A pending rename that completed meanwhile may have given the object another tag.
        let old = self.object(&self.names.inode(file.ino)?)?.unwrap_or(old);
        self.relocate(&inode, &stored_at(&beside))?;
        file.repin(|| self.pin_of(file.ino))?;
        state.rebase(file.pin().0);
        let deleted = async {
            self.sync_names_unless_write_back().await?;
            self.delete_unless_replaced(&old).await
        };
        let deleted = deleted.await;
        match (deleted, self.names.inode(file.ino)) {
            (Err(error), Ok(inode)) => {
                match self.reattach_object(&inode, &old, beside.key, file, state).await? {
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
        beside: ObjectKey,
        file: &OpenFile,
        state: &mut WriteState,
    ) -> Result<bool> {
        let found = self.store.find(&old.key).await?;
        if found.is_none_or(|found| found.object.etag != old.etag) {
            return Ok(false);
        }
        self.publish(inode, old, inode.size_bytes, None)?;
        file.repin(|| self.pin_of(file.ino))?;
        state.rebase(file.pin().0);
        self.discard(beside).await;
        Ok(true)
    }
}
