//! A volume named by inode: a change of a name is one commit, and no object moves.

use bytes::Bytes;
use meta::{Ino, Inode, Kind, Name, Op, Origin, RenameHow};
use std::sync::Arc;
use store::ObjectKey;

use crate::attr::Caller;
use crate::base::Base;
use crate::bucket::BucketServices;
use crate::bucket::imports::Importer;
use crate::bucket::known_state::KnownState;
use crate::content::Content;
use crate::content::opener::FileOpener;
use crate::mount::Mount;
use crate::names::Names;
use crate::names::handles::Opened;
use crate::ops::entries::EntryOps;
use crate::ops::remove::Remover;
use crate::ops::rename::Move;
use crate::volumes::rules::{Evicted, VolumeRules};
use crate::{Attr, Error, Result};

/// Rules of a volume whose keys are made of inode numbers.
pub(super) const RULES: VolumeRules = VolumeRules {
    follows_bucket: false,
    can_be_shared: false,
    exports_attributes: false,
    removes_unstored_files: false,
    names_documents_by_bucket: false,
    stores_holes: false,
    file_bytes_max: u64::MAX,
    evicted: Evicted::References,
};

/// A volume whose keys are made of inode numbers.
#[derive(Debug)]
pub(crate) struct InodeVolume {
    mount: Arc<Mount>,
    names: Arc<Names>,
    content: Arc<Content>,
    known: Arc<KnownState>,
    opener: Arc<FileOpener>,
    importer: Arc<Importer>,
    remover: Arc<Remover>,
}

impl InodeVolume {
    pub(crate) fn new(
        base: &Base,
        services: &BucketServices,
        opener: &Arc<FileOpener>,
        entries: &EntryOps,
    ) -> Self {
        Self {
            mount: base.mount.clone(),
            names: base.names.clone(),
            content: base.content.clone(),
            known: services.known.clone(),
            opener: opener.clone(),
            importer: Importer::new(base),
            remover: entries.remover.clone(),
        }
    }

    pub(super) fn refuse_views(&self) -> Result<()> {
        Err(Error::Volume("says that it is named by inode: views need a volume named by path".into()))
    }

    pub(super) async fn create_unnamed(
        &self,
        caller: Caller,
        parent: Ino,
        mode: u16,
        flags: i32,
    ) -> Result<(Attr, Opened)> {
        if self.mount.config.batch.is_some() {
            return Err(Error::new(libc::EOPNOTSUPP, "a file without a name cannot be part of a batch"));
        }
        let ino = self.names.new_ino(parent)?;
        let (mode, umask) = (mode & 0o7777, caller.umask & 0o777);
        let op = Op::CreateOrphan { parent, ino, mode, umask, uid: caller.uid, gid: caller.gid };
        let inode = self.names.commit(Origin::FrontEnd, &op)?.inode.ok_or(Error::NOT_FOUND)?;
        let file = self.opener.open_file(ino)?;
        file.set_linkable(flags & libc::O_EXCL == 0);
        let begun = self.content.begin_new(&file, &mut *file.write_state.lock().await);
        if let Err(error) = begun {
            file.close().await?;
            return Err(error);
        }
        self.names.references().add(ino);
        Ok((Attr::from(&file.overlay(inode)), self.opener.new_handle(file.into_open_file(), flags)))
    }

    pub(super) async fn unlink(&self, parent: Ino, name: Name) -> Result<()> {
        let op = Op::Unlink { parent, name, keep: true };
        let removed = self.names.commit(Origin::FrontEnd, &op)?;
        self.opener.release_orphan(&removed).await
    }

    pub(super) fn rmdir(&self, origin: Origin, parent: Ino, name: Name, directory: &Inode) -> Result<()> {
        self.remover.forget_directory(origin, parent, name)?;
        self.known.forget_removed_directory(directory);
        Ok(())
    }

    /// Renames in one commit, including a whiteout: a character device 0/0 at the old name (rename(2)).
    pub(super) async fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> Result<()> {
        let Move { from, to, how, leaves_whiteout } = Move::parse(from, to, flags)?;
        self.mount.layout.check_not_reserved(self.names.tables(), to.0, to.1.as_bytes())?;
        let mut ops = vec![Op::Rename { from: from.clone(), to: to.clone(), how, keep: true }];
        let mut origin = Origin::FrontEnd;
        if how != RenameHow::Exchange
            && self.is_directory_at(&from)?
            && let Some(unshadow) = self.names.op_to_unshadow(from.0, &from.1)?
        {
            // The front end knows nothing of the file that gets its name back.
            origin = Origin::Other;
            ops.push(unshadow);
        }
        // Renaming one name of an inode to another of its names does nothing and leaves no whiteout.
        if leaves_whiteout && !self.are_links_of_one_inode(&from, &to)? {
            let ino = self.names.new_ino(from.0)?;
            let (uid, gid) = (self.mount.config.uid, self.mount.config.gid);
            ops.push(Op::Create {
                parent: from.0,
                name: from.1,
                ino,
                kind: Kind::CharDevice,
                mode: 0,
                umask: 0,
                uid,
                gid,
                rdev: 0,
                target: None,
            });
        }
        let moved = self.names.commit_together(origin, &ops)?;
        match moved.first() {
            Some(moved) => self.opener.release_orphan(moved).await,
            None => Ok(()),
        }
    }

    fn is_directory_at(&self, place: &(Ino, Name)) -> Result<bool> {
        Ok(self.names.tables().entry(place.0, &place.1)?.is_some_and(|entry| entry.kind == Kind::Directory))
    }

    fn are_links_of_one_inode(&self, from: &(Ino, Name), to: &(Ino, Name)) -> Result<bool> {
        let (from, to) =
            (self.names.tables().entry(from.0, &from.1)?, self.names.tables().entry(to.0, &to.1)?);
        Ok(from.is_some() && from.map(|entry| entry.ino) == to.map(|entry| entry.ino))
    }

    pub(super) async fn name_content(&self, keys: &[ObjectKey]) -> Result<Vec<Bytes>> {
        self.importer.name_content(keys).await
    }

    pub(super) async fn import_foreign(&self) -> Result<Vec<Bytes>> {
        self.importer.import_foreign().await
    }
}
