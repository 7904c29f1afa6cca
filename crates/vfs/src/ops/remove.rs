//! Removal of files and directories.

use meta::{FsError, Ino, Inode, Name, Op, Origin};
use std::sync::Arc;

use crate::base::Base;
use crate::bucket::export_queue::ExportQueue;
use crate::bucket::known_state::KnownState;
use crate::bucket::parts::BucketParts;
use crate::bucket::path_locks::ChangeLocks;
use crate::content::Content;
use crate::content::open_file::OpenFile;
use crate::content::opener::FileOpener;
use crate::content::write::publisher::Publisher;
use crate::mount::Mount;
use crate::names::Names;
use crate::objects::moved_settings::BucketSettings;
use crate::ops::rename::Renamer;
use crate::{Error, Result};

/// Removes names, and the objects that have no name left.
#[derive(Debug)]
pub(crate) struct Remover {
    pub(in crate::ops) mount: Arc<Mount>,
    pub(in crate::ops) names: Arc<Names>,
    pub(in crate::ops) content: Arc<Content>,
    pub(in crate::ops) known: Arc<KnownState>,
    pub(in crate::ops) locks: Arc<ChangeLocks>,
    pub(in crate::ops) publisher: Arc<Publisher>,
    pub(in crate::ops) opener: Arc<FileOpener>,
    pub(in crate::ops) settings: Arc<BucketSettings>,
    pub(in crate::ops) exports: Arc<ExportQueue>,
    pub(in crate::ops) renamer: Arc<Renamer>,
}

impl Remover {
    pub(crate) fn new(
        base: &Base,
        parts: &BucketParts,
        publisher: &Arc<Publisher>,
        opener: &Arc<FileOpener>,
        settings: &Arc<BucketSettings>,
        renamer: &Arc<Renamer>,
    ) -> Arc<Self> {
        Arc::new(Self {
            mount: base.mount.clone(),
            names: base.names.clone(),
            content: base.content.clone(),
            known: parts.known.clone(),
            locks: parts.locks.clone(),
            publisher: publisher.clone(),
            opener: opener.clone(),
            settings: settings.clone(),
            exports: parts.exports.clone(),
            renamer: renamer.clone(),
        })
    }
}

impl Remover {
    /// Removes a known name in a volume named by path. Unlike `unlink`, stores no marker: a directory without one disappears with
    /// its last entry.
    pub(crate) async fn unlink_name(&self, origin: Origin, parent: Ino, name: &Name, ino: Ino) -> Result<()> {
        let file = self.opener.open_file(ino)?;
        let outcome = self.unlink_file(origin, parent, name, &file).await;
        let closed = file.close().await;
        outcome.and(closed)
    }

    /// Removes a name of an open file, which is locked so that it is not published, moved or removed meanwhile.
    async fn unlink_file(&self, origin: Origin, parent: Ino, name: &Name, file: &OpenFile) -> Result<()> {
        let mut state = file.write_state.lock().await;
        self.publisher.resolve_unconfirmed_upload(file, &mut state).await?;
        Box::pin(self.renamer.promote_link(parent, name, file, &mut state)).await?;
        if self.names.tables().entry(parent, name)?.is_none_or(|entry| entry.ino != file.ino) {
            return Err(Error::NOT_FOUND);
        }
        if !self.names.is_shown(parent, name, &self.names.tables().inode(file.ino)?)? {
            let _changing = self.known.changes().begin(parent, name);
            self.names.commit(origin, &Op::Unlink { parent, name: name.clone(), keep: true })?;
            // Otherwise a loss of power would restore the name, leading to whatever is at the file's path then.
            return self.names.sync_names_unless_write_back().await;
        }
        let preserved = match self.content.files().users(file.ino) {
            0 | 1 => None,
            _ => self.publisher.preserve_object(file, &mut state).await?,
        };
        let removed = self.delete_and_unlink(origin, parent, name, file).await;
        self.publisher.finish_preserving(file, &mut state, preserved, removed.is_ok()).await?;
        removed
    }

    /// Deletes a file's object, then its name. The file is open, at least by this call: its last close purges it.
    async fn delete_and_unlink(
        &self,
        origin: Origin,
        parent: Ino,
        name: &Name,
        file: &OpenFile,
    ) -> Result<()> {
        let _path = self.locks.lock_entries(&[&(parent, name.clone())]).await?;
        let key = self.mount.layout.key(self.names.tables(), &self.names.tables().inode(file.ino)?)?;
        let _key_lock = self.locks.key_locks().lock(&key).await;
        let _changing = self.known.changes().begin(parent, name);
        let inode = self.names.tables().inode(file.ino)?;
        if inode.home.as_ref() != Some(&(parent, name.clone())) {
            return Err(Error::NOT_FOUND);
        }
        if inode.object().is_some() || file.is_concurrently_modified() {
            file.record_removal();
            self.content
                .delete(&key)
                .await
                .inspect_err(|_| self.content.files().mark_unconfirmed(file.ino))?;
        }
        self.exports.window().remove(file.ino);
        match self.names.commit(origin, &Op::Unlink { parent, name: name.clone(), keep: true }) {
            // Reconciliation has removed the parent directory meanwhile.
            Ok(_) | Err(FsError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes a directory's marker, then its name.
    pub(crate) async fn delete_and_rmdir(
        &self,
        origin: Origin,
        parent: Ino,
        name: Name,
        inode: &Inode,
    ) -> Result<()> {
        let _path = self.locks.lock_entries(&[&(parent, name.clone())]).await?;
        let is_shown = self.names.has_path_key(inode)?;
        let marker = self.mount.layout.key(self.names.tables(), inode).ok().filter(|_| is_shown);
        let _key_lock = match &marker {
            Some(marker) => Some(self.locks.key_locks().lock(marker).await),
            None => None,
        };
        let _changing = self.known.changes().begin(parent, &name);
        if self.names.tables().lookup(parent, &name)?.is_none_or(|there| there.ino != inode.ino) {
            return Err(Error::NOT_FOUND);
        }
        if let Some(marker) = &marker {
            self.content.delete(marker).await?;
        }
        self.exports.window().remove(inode.ino);
        self.forget_directory(origin, parent, name)
    }

    /// Removes a directory from the namespace, with its settings. A file that shared its name gets its plain name back.
    pub(crate) fn forget_directory(&self, origin: Origin, parent: Ino, name: Name) -> Result<()> {
        let unshadow = self.names.op_to_unshadow(parent, &name)?;
        let has_shadowed_file = unshadow.is_some();
        // A front end knows nothing of the file that gets its name back.
        let origin = if has_shadowed_file { Origin::Other } else { origin };
        let rmdir = Op::Rmdir { parent, name: name.clone() };
        self.settings.commit_with_settings(Some((parent, &name)), None, |notes| {
            let ops: Vec<Op> = [rmdir.clone()].into_iter().chain(unshadow).chain(notes.clone()).collect();
            match self.names.commit_together(origin, &ops) {
                // The shadowed file was removed in between.
                Err(FsError::NotFound) if has_shadowed_file => {
                    let ops: Vec<Op> = [rmdir].into_iter().chain(notes).collect();
                    Ok(self.names.commit_together(origin, &ops).map(drop)?)
                }
                done => Ok(done.map(drop)?),
            }
        })
    }
}
