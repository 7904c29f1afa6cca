//! Removing files and directories.

use bytes::Bytes;
use meta::{Applied, FsError, Ino, Inode, Kind, Name, Op, RenameHow};
use store::{ListRequest, ObjectKey, Precondition, StoreError, names};

use crate::content::open_file::OpenFile;
use crate::filesystem::name;
use crate::{Attr, Error, Filesystem, Result};

impl Filesystem {
    /// Removes a file; who has it open reads and writes on.
    pub async fn unlink(&self, parent: Ino, name_bytes: &[u8]) -> Result<()> {
        if let Some(views) = self.derived_at(parent) {
            return Box::pin(self.unlink_derived(views, parent, name_bytes)).await;
        }
        self.writable()?;
        let name = name(name_bytes)?;
        if !self.layout.follows_paths() {
            let removed = self.names.commit(&self.ctx(), &Op::Unlink { parent, name, keep: true })?;
            return self.let_go(&removed).await;
        }
        let inode = self.must(self.find(parent, &name).await?)?;
        if inode.kind == Kind::Directory {
            return Err(Error::IS_DIRECTORY);
        }
        self.keep_directory(parent).await?;
        self.unlink_name(parent, &name, inode.ino).await
    }

    /// The same of a name that is known in a volume named by path. The directory goes with its last entry.
    pub(crate) async fn unlink_name(&self, parent: Ino, name: &Name, ino: Ino) -> Result<()> {
        let file = self.open_file(ino)?;
        let outcome = self.unlink_file(parent, name, &file).await;
        let closed = file.close().await;
        outcome.and(closed)
    }

    /// An inode that lost its last name goes with its last handle, which may be long gone.
    pub(crate) async fn let_go(&self, removed: &Applied) -> Result<()> {
        let Some(orphan) = removed.removed.as_ref().filter(|_| removed.orphaned) else { return Ok(()) };
        match self.open_file(orphan.ino) {
            Ok(file) => file.close().await,
            // Its last handle was closed since, and took it along.
            Err(Error::Namespace(FsError::NotFound)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The file's work is held, so that nobody publishes, moves or removes it meanwhile.
    async fn unlink_file(&self, parent: Ino, name: &Name, file: &OpenFile) -> Result<()> {
        let mut work = file.work.lock().await;
        self.adopt_if_tried(file, &mut work).await?;
        Box::pin(self.hand_on(parent, name, file, &mut work)).await?;
        if self.names.entry(parent, name)?.is_none_or(|entry| entry.ino != file.ino) {
            return Err(Error::NOT_FOUND);
        }
        if !self.is_shown(parent, name, &self.names.inode(file.ino)?)? {
            let _changing = self.changes.begin(parent, name);
            self.names.commit(&self.ctx(), &Op::Unlink { parent, name: name.clone(), keep: true })?;
            // Else the loss of power would bring it back as a name of whatever lies at the file's path then.
            return self.names_first().await;
        }
        let aside = match self.files.users(file.ino) {
            0 | 1 => None,
            _ => self.preserve_object(file, &mut work).await?,
        };
        let taken = self.take_name(parent, name, file).await;
        self.finish_preserving(file, &mut work, aside, taken.is_ok()).await?;
        taken
    }

    /// Deletes the object, then the name. The file is open, if only here: its last close purges it.
    async fn take_name(&self, parent: Ino, name: &Name, file: &OpenFile) -> Result<()> {
        let _path = self.lock_entries(&[&(parent, name.clone())]).await?;
        let key = self.layout.key(&self.names, &self.names.inode(file.ino)?)?;
        let _claim = self.claims.claim(&key).await;
        let _changing = self.changes.begin(parent, name);
        let inode = self.names.inode(file.ino)?;
        if inode.home.as_ref() != Some(&(parent, name.clone())) {
            return Err(Error::NOT_FOUND);
        }
        if inode.object().is_some() || file.is_overtaken() {
            file.tries_removal();
            self.delete(&key).await.inspect_err(|_| self.files.went_unheard(file.ino))?;
        }
        self.exports.remove(file.ino);
        match self.names.commit(&self.ctx(), &Op::Unlink { parent, name: name.clone(), keep: true }) {
            // The directory above was found to be gone.
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
        self.writable()?;
        let name = name(name_bytes)?;
        let inode = self.must(self.find(parent, &name).await?)?;
        if inode.kind != Kind::Directory {
            return Err(Error::NOT_DIRECTORY);
        }
        if !self.layout.follows_paths() {
            self.forget_directory(parent, name)?;
            self.forget_removed(&inode);
            return Ok(());
        }
        self.must_be_empty(&inode).await?;
        self.keep_directory(parent).await?;
        let removed = self.take_directory(parent, name, &inode).await;
        if matches!(removed, Err(Error::Namespace(_))) {
            // Somebody made an entry in between: the directory stays, with its marker.
            self.store_new(&inode, Bytes::new(), Precondition::None).await?;
        }
        removed?;
        self.forget_removed(&inode);
        Ok(())
    }

    /// Forgets what is known of a removed directory's entries. A program that has the directory open asks for its attributes
    /// still, which the tables have no more.
    pub(crate) fn forget_removed(&self, directory: &Inode) {
        self.directories.remove(directory.ino);
        let ctime = directory.ctime.max(self.now());
        self.references.note_removed(Attr { nlink: 0, ctime, ..Attr::from(directory) });
    }

    /// What lies beside a directory has its plain name again when that goes.
    pub(crate) fn plain_again(&self, parent: Ino, name: &Name) -> Result<Option<Op>, FsError> {
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
    async fn take_directory(&self, parent: Ino, name: Name, inode: &Inode) -> Result<()> {
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
        let again = self.plain_again(parent, &name)?;
        let has_beside = again.is_some();
        let rmdir = Op::Rmdir { parent, name: name.clone() };
        self.commit_with_settings(Some((parent, &name)), None, |notes| {
            let ops: Vec<Op> = [rmdir.clone()].into_iter().chain(again).chain(notes.clone()).collect();
            match self.names.commit_together(&self.ctx(), &ops) {
                // The other entry of that name was removed in between.
                Err(FsError::NotFound) if has_beside => {
                    let ops: Vec<Op> = [rmdir].into_iter().chain(notes).collect();
                    Ok(self.names.commit_together(&self.ctx(), &ops).map(drop)?)
                }
                done => Ok(done.map(drop)?),
            }
        })
    }

    /// Asks the bucket whether a directory has anything in it but its marker.
    pub(crate) async fn must_be_empty(&self, inode: &Inode) -> Result<()> {
        let prefix = self.layout.directory(&self.names, inode.ino)?;
        if !self.layout.lists(&prefix) {
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
            // The bucket has nothing: what is still known here, and not being written, is gone.
            self.list_page(inode.ino, &self.directories.get(inode.ino), b"").await?;
        }
        if self.names.entries(inode.ino, None, 1)?.is_empty() { Ok(()) } else { Err(Error::NOT_EMPTY) }
    }

    /// A directory that only its last entry's key names gets a marker before that entry leaves.
    pub(crate) async fn keep_directory(&self, dir: Ino) -> Result<()> {
        if dir == Ino::ROOT {
            return Ok(());
        }
        let inode = self.names.inode(dir)?;
        if inode.object().is_some() || self.names.entries(dir, None, 2)?.len() > 1 {
            return Ok(());
        }
        match self.store_new(&inode, Bytes::new(), Precondition::Absent).await {
            // Somebody else made it.
            Err(Error::Store(StoreError::PreconditionFailed(_))) => Ok(()),
            // A server that cannot hold this marker (MinIO adds to the name on its disk) must not keep the entry
            // from being removed; the directory then goes with it, as it does for every S3 program.
            Err(Error::Store(StoreError::InvalidKey { key, reason })) => {
                tracing::info!("a directory is not kept, the server refuses its marker {key}: {reason}");
                Ok(())
            }
            stored => stored,
        }
    }

    pub(crate) async fn delete(&self, key: &ObjectKey) -> Result<()> {
        match self.store.delete(key, Precondition::None).await {
            Ok(()) | Err(StoreError::NotFound(_)) => Ok(()),
            // Only the answer may have been lost.
            Err(error) => match self.store.head(key).await {
                Err(StoreError::NotFound(_)) => Ok(()),
                _ => Err(error.into()),
            },
        }
    }
}
