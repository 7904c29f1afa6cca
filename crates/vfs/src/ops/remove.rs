//! Removal of files and directories.

use bytes::Bytes;
use meta::{Applied, FsError, Ino, Inode, Kind, Name, Op, RenameHow};
use store::{ListRequest, ObjectKey, Precondition, StoreError, names};

use crate::content::open_file::OpenFile;
use crate::filesystem::name;
use crate::{Attr, Error, Filesystem, Result};

impl Filesystem {
    /// Removes a file; open handles keep reading and writing it.
    pub async fn unlink(&self, parent: Ino, name_bytes: &[u8]) -> Result<()> {
        if let Some(views) = self.derived_at(parent) {
            return Box::pin(self.unlink_derived(views, parent, name_bytes)).await;
        }
        self.check_writable()?;
        let name = name(name_bytes)?;
        if !self.layout.follows_paths() {
            let removed = self.names.commit(&self.ctx(), &Op::Unlink { parent, name, keep: true })?;
            return self.release_orphan(&removed).await;
        }
        let inode = self.must(self.find(parent, &name).await?)?;
        if inode.kind == Kind::Directory {
            return Err(Error::IS_DIRECTORY);
        }
        self.ensure_marker(parent).await?;
        self.unlink_name(parent, &name, inode.ino).await
    }

    /// Removes a known name in a volume named by path. Unlike `unlink`, stores no marker: a directory without one disappears with
    /// its last entry.
    pub(crate) async fn unlink_name(&self, parent: Ino, name: &Name, ino: Ino) -> Result<()> {
        let file = self.open_file(ino)?;
        let outcome = self.unlink_file(parent, name, &file).await;
        let closed = file.close().await;
        outcome.and(closed)
    }

    /// Deletes an inode that lost its last name, unless it is open: then its last close deletes it.
    pub(crate) async fn release_orphan(&self, removed: &Applied) -> Result<()> {
        let Some(orphan) = removed.removed.as_ref().filter(|_| removed.orphaned) else { return Ok(()) };
        match self.open_file(orphan.ino) {
            Ok(file) => file.close().await,
            // The last handle was closed meanwhile, which deleted the inode.
            Err(Error::Namespace(FsError::NotFound)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes a name of an open file, which is locked so that it is not published, moved or removed meanwhile.
    async fn unlink_file(&self, parent: Ino, name: &Name, file: &OpenFile) -> Result<()> {
        let mut state = file.write_state.lock().await;
        self.resolve_unconfirmed_upload(file, &mut state).await?;
        Box::pin(self.promote_link(parent, name, file, &mut state)).await?;
        if self.names.entry(parent, name)?.is_none_or(|entry| entry.ino != file.ino) {
            return Err(Error::NOT_FOUND);
        }
        if !self.is_shown(parent, name, &self.names.inode(file.ino)?)? {
            let _changing = self.changes.begin(parent, name);
            self.names.commit(&self.ctx(), &Op::Unlink { parent, name: name.clone(), keep: true })?;
            // Otherwise a loss of power would restore the name, leading to whatever is at the file's path then.
            return self.sync_names_unless_write_back().await;
        }
        let aside = match self.files.users(file.ino) {
            0 | 1 => None,
            _ => self.preserve_object(file, &mut state).await?,
        };
        let taken = self.delete_and_unlink(parent, name, file).await;
        self.finish_preserving(file, &mut state, aside, taken.is_ok()).await?;
        taken
    }

    /// Deletes the object, then the name. The file is open, at least by this call: its last close purges it.
    async fn delete_and_unlink(&self, parent: Ino, name: &Name, file: &OpenFile) -> Result<()> {
        let _path = self.lock_entries(&[&(parent, name.clone())]).await?;
        let key = self.layout.key(&self.names, &self.names.inode(file.ino)?)?;
        let _claim = self.claims.claim(&key).await;
        let _changing = self.changes.begin(parent, name);
        let inode = self.names.inode(file.ino)?;
        if inode.home.as_ref() != Some(&(parent, name.clone())) {
            return Err(Error::NOT_FOUND);
        }
        if inode.object().is_some() || file.is_concurrently_modified() {
            file.record_removal();
            self.delete(&key).await.inspect_err(|_| self.files.mark_unconfirmed(file.ino))?;
        }
        self.exports.remove(file.ino);
        match self.names.commit(&self.ctx(), &Op::Unlink { parent, name: name.clone(), keep: true }) {
            // Reconciliation has removed the parent directory meanwhile.
            Ok(_) | Err(FsError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, parent: Ino, name_bytes: &[u8]) -> Result<()> {
        if let Some(views) = self.derived_at(parent) {
            return self.rmdir_derived(views, parent, name_bytes).await;
        }
        self.check_not_derived(parent, name_bytes)?;
        self.check_writable()?;
        let name = name(name_bytes)?;
        let inode = self.must(self.find(parent, &name).await?)?;
        if inode.kind != Kind::Directory {
            return Err(Error::NOT_DIRECTORY);
        }
        if !self.layout.follows_paths() {
            self.forget_directory(parent, name)?;
            self.forget_removed_directory(&inode);
            return Ok(());
        }
        self.check_empty(&inode).await?;
        self.ensure_marker(parent).await?;
        let removed = self.delete_and_rmdir(parent, name, &inode).await;
        if matches!(removed, Err(Error::Namespace(_))) {
            // An entry was created in between: the directory stays, so its marker is stored again.
            self.store_new(&inode, Bytes::new(), Precondition::None).await?;
        }
        removed?;
        self.forget_removed_directory(&inode);
        Ok(())
    }

    /// Forgets the cached state of a removed directory. A program that has the directory open may still ask for its attributes,
    /// which the tables no longer have.
    pub(crate) fn forget_removed_directory(&self, directory: &Inode) {
        self.directories.remove(directory.ino);
        let ctime = directory.ctime.max(self.now());
        self.references.note_removed(Attr { nlink: 0, ctime, ..Attr::from(directory) });
    }

    /// Returns the op that gives a shadowed file (`%=name`) its plain name back when the directory of that name goes.
    pub(crate) fn op_to_unshadow(&self, parent: Ino, name: &Name) -> Result<Option<Op>, FsError> {
        let Ok(beside) = Name::new(&names::beside(name.as_bytes())) else { return Ok(None) };
        let is_there = self.names.entry(parent, &beside)?.is_some_and(|entry| entry.kind != Kind::Directory);
        if is_there {
            self.invalidations.entry(parent, beside.as_bytes());
            self.invalidations.entry(parent, name.as_bytes());
        }
        let (from, to) = ((parent, beside), (parent, name.clone()));
        Ok(is_there.then_some(Op::Rename { from, to, how: RenameHow::NoReplace, keep: true }))
    }

    /// Deletes the marker, then the name.
    async fn delete_and_rmdir(&self, parent: Ino, name: Name, inode: &Inode) -> Result<()> {
        let _path = self.lock_entries(&[&(parent, name.clone())]).await?;
        let is_shown = self.has_path_key(inode)?;
        let marker = self.layout.key(&self.names, inode).ok().filter(|_| is_shown);
        let _claim = match &marker {
            Some(marker) => Some(self.claims.claim(marker).await),
            None => None,
        };
        let _changing = self.changes.begin(parent, &name);
        if self.names.lookup(parent, &name)?.is_none_or(|there| there.ino != inode.ino) {
            return Err(Error::NOT_FOUND);
        }
        if let Some(marker) = &marker {
            self.delete(marker).await?;
        }
        self.exports.remove(inode.ino);
        self.forget_directory(parent, name)
    }

    fn forget_directory(&self, parent: Ino, name: Name) -> Result<()> {
        let again = self.op_to_unshadow(parent, &name)?;
        let has_beside = again.is_some();
        let rmdir = Op::Rmdir { parent, name: name.clone() };
        self.commit_with_settings(Some((parent, &name)), None, |notes| {
            let ops: Vec<Op> = [rmdir.clone()].into_iter().chain(again).chain(notes.clone()).collect();
            match self.names.commit_together(&self.ctx(), &ops) {
                // The shadowed file was removed in between.
                Err(FsError::NotFound) if has_beside => {
                    let ops: Vec<Op> = [rmdir].into_iter().chain(notes).collect();
                    Ok(self.names.commit_together(&self.ctx(), &ops).map(drop)?)
                }
                done => Ok(done.map(drop)?),
            }
        })
    }

    /// Fails if the bucket has anything in the directory besides its marker.
    pub(crate) async fn check_empty(&self, inode: &Inode) -> Result<()> {
        let prefix = self.layout.directory(&self.names, inode.ino)?;
        if !self.layout.can_list(&prefix) {
            let is_empty = self.names.entries(inode.ino, None, 1)?.is_empty();
            return if is_empty { Ok(()) } else { Err(Error::NOT_EMPTY) };
        }
        let request = ListRequest {
            prefix: Bytes::copy_from_slice(prefix.as_bytes()),
            limit: 2,
            ..ListRequest::default()
        };
        let page = self.store.list(request).await?;
        if page.entries.iter().any(|entry| entry.text() != prefix.as_bytes()) {
            return Err(Error::NOT_EMPTY);
        }
        if !self.names.entries(inode.ino, None, 1)?.is_empty() {
            // The bucket has nothing: known entries that are not being written are gone.
            self.list_page(inode.ino, &self.directories.get(inode.ino), b"").await?;
        }
        if self.names.entries(inode.ino, None, 1)?.is_empty() { Ok(()) } else { Err(Error::NOT_EMPTY) }
    }

    /// Stores a marker for a directory without one whose last entry is about to leave.
    pub(crate) async fn ensure_marker(&self, dir: Ino) -> Result<()> {
        if dir == Ino::ROOT {
            return Ok(());
        }
        let inode = self.names.inode(dir)?;
        if inode.object().is_some() || self.names.entries(dir, None, 2)?.len() > 1 {
            return Ok(());
        }
        match self.store_new(&inode, Bytes::new(), Precondition::Absent).await {
            // Another client stored the marker.
            Err(Error::Store(StoreError::PreconditionFailed(_))) => Ok(()),
            // A server that cannot store this marker (MinIO adds to the name on its disk) must not prevent the removal of the
            // entry. The directory then disappears with its last entry, as it does for every S3 client.
            Err(Error::Store(StoreError::InvalidKey { key, reason })) => {
                tracing::info!(
                    "an empty directory cannot be kept: the server refuses its marker {key}: {reason}"
                );
                Ok(())
            }
            stored => stored,
        }
    }

    pub(crate) async fn delete(&self, key: &ObjectKey) -> Result<()> {
        match self.store.delete(key, Precondition::None).await {
            Ok(()) | Err(StoreError::NotFound(_)) => Ok(()),
            // The object may have been deleted although the answer was lost.
            Err(error) => match self.store.head(key).await {
                Err(StoreError::NotFound(_)) => Ok(()),
                _ => Err(error.into()),
            },
        }
    }
}
