//! Creation of files, directories, symbolic links and special files.

use bytes::Bytes;
use meta::{Ino, Inode, Kind, Name, Op, Origin};
use std::sync::Arc;
use store::Precondition;

use crate::attr::Caller;
use crate::base::Base;
use crate::bucket::conflicts::ConflictRecords;
use crate::bucket::discovery::Discovery;
use crate::bucket::known_state::KnownState;
use crate::bucket::parts::BucketParts;
use crate::bucket::path_locks::ChangeLocks;
use crate::content::Content;
use crate::content::open_file::OpenFile;
use crate::content::opener::FileOpener;
use crate::content::write::When;
use crate::content::write::publisher::Publisher;
use crate::mount::Mount;
use crate::names::Names;
use crate::names::handles::Opened;
use crate::objects::moved_settings::BucketSettings;
use crate::{Attr, Error, Result};

/// Creates files and directories.
#[derive(Debug)]
pub(crate) struct Creator {
    pub(in crate::ops) mount: Arc<Mount>,
    pub(in crate::ops) names: Arc<Names>,
    pub(in crate::ops) content: Arc<Content>,
    pub(in crate::ops) known: Arc<KnownState>,
    pub(in crate::ops) locks: Arc<ChangeLocks>,
    pub(in crate::ops) conflicts: Arc<ConflictRecords>,
    pub(in crate::ops) discovery: Arc<Discovery>,
    pub(in crate::ops) publisher: Arc<Publisher>,
    pub(in crate::ops) opener: Arc<FileOpener>,
    pub(in crate::ops) settings: Arc<BucketSettings>,
}

impl Creator {
    pub(crate) fn new(
        base: &Base,
        parts: &BucketParts,
        discovery: &Arc<Discovery>,
        publisher: &Arc<Publisher>,
        opener: &Arc<FileOpener>,
        settings: &Arc<BucketSettings>,
    ) -> Arc<Self> {
        Arc::new(Self {
            mount: base.mount.clone(),
            names: base.names.clone(),
            content: base.content.clone(),
            known: parts.known.clone(),
            locks: parts.locks.clone(),
            conflicts: parts.conflicts.clone(),
            discovery: discovery.clone(),
            publisher: publisher.clone(),
            opener: opener.clone(),
            settings: settings.clone(),
        })
    }
}

impl Creator {
    /// Creates and opens a file on a bucket that other machines mount too. For `O_EXCL` a conditional PUT of an empty
    /// object decides which mount creates the file. Otherwise ESTALE tells the front end to look up and open a file
    /// that another mount has created.
    pub(crate) async fn create_shared(
        &self,
        caller: Caller,
        parent: Ino,
        name: &Name,
        mode: u16,
        flags: i32,
    ) -> Result<(Attr, Opened)> {
        let has_key = self.mount.layout.has_key(
            &self.mount.layout.directory(self.names.tables(), parent)?,
            name,
            Kind::File,
        );
        if flags & libc::O_EXCL == 0 || !has_key {
            self.discovery.probe(parent, name).await?;
            if self.names.tables().entry(parent, name)?.is_some() {
                return Err(Error::StaleEntry("another mount of the bucket has just created the file"));
            }
            return self.create_here(Origin::FrontEnd, caller, parent, name, mode, flags).await;
        }
        let attr =
            self.make_stored(Origin::FrontEnd, caller, parent, name, Kind::File, mode, 0, None).await?;
        // `make_stored` has counted the kernel's reference already.
        let file = self.opener.open_file(attr.ino)?;
        Ok((attr, self.opener.new_handle(file.into_open_file(), flags | libc::O_RDWR)))
    }

    /// Fails if the policy `fail` blocks writes at a name.
    pub(crate) fn check_not_in_conflict(&self, parent: Ino, name: &Name) -> Result<()> {
        self.conflicts.check_not_in_conflict_at(parent, name)
    }

    /// Creates and opens a file, which is stored when it is closed.
    pub(crate) async fn create_here(
        &self,
        origin: Origin,
        caller: Caller,
        parent: Ino,
        name: &Name,
        mode: u16,
        flags: i32,
    ) -> Result<(Attr, Opened)> {
        let (inode, file) = {
            // A file that is neither stored nor open would look like the leftover of a dead mount.
            let _changing = self.known.changes().begin(parent, name);
            let inode = self.make(origin, caller, parent, name, Kind::File, mode, 0, None)?;
            let file = self.opener.open_file(inode.ino)?;
            file.set_new(true);
            (inode, file)
        };
        let begun = self.content.begin_new(&file, &mut *file.write_state.lock().await);
        if let Err(error) = begun {
            file.close().await?;
            self.known.roll_back_create(parent, name, &inode)?;
            return Err(error);
        }
        self.names.references().add(inode.ino);
        let is_write_only = flags & libc::O_ACCMODE == libc::O_WRONLY;
        if is_write_only && self.mount.config.bypasses_page_cache_for_new_files {
            file.bypass_page_cache();
        }
        // The creator stores the file at close, even through a read-only descriptor.
        Ok((
            Attr::from(&file.overlay(inode)),
            self.opener.new_handle(file.into_open_file(), flags | libc::O_RDWR),
        ))
    }

    /// Stores the content of a file that has just got its first name, and makes it an ordinary file.
    pub(crate) async fn store_named(&self, file: &OpenFile) -> Result<()> {
        self.publisher.commit(file, When::Open).await?;
        file.set_linkable(false);
        Ok(())
    }

    /// Creates an inode with a name in the namespace alone.
    #[expect(clippy::too_many_arguments, reason = "a new inode has so many properties")]
    fn make(
        &self,
        origin: Origin,
        caller: Caller,
        parent: Ino,
        name: &Name,
        kind: Kind,
        mode: u16,
        rdev: u32,
        target: Option<Bytes>,
    ) -> Result<Inode> {
        let ino = self.names.new_ino(parent)?;
        let op = Op::Create {
            parent,
            name: name.clone(),
            ino,
            kind,
            mode: mode & 0o7777,
            umask: caller.umask & 0o777,
            uid: caller.uid,
            gid: caller.gid,
            rdev,
            target,
        };
        let made = self.names.commit(origin, &op)?.inode;
        made.ok_or(Error::new(libc::EIO, "the namespace created no inode"))
    }

    /// Creates an inode that is stored at once; if it cannot be stored, the creation is undone. EEXIST if another
    /// client has stored an object under the name. Counts one kernel reference.
    #[expect(clippy::too_many_arguments, reason = "a new inode has so many properties")]
    pub(crate) async fn make_stored(
        &self,
        origin: Origin,
        caller: Caller,
        parent: Ino,
        name: &Name,
        kind: Kind,
        mode: u16,
        rdev: u32,
        target: Option<Bytes>,
    ) -> Result<Attr> {
        let _path = self.locks.lock_entries(&[&(parent, name.clone())]).await?;
        // A directory that is not stored yet would look like one that was removed in the bucket.
        let _changing = self.known.changes().begin(parent, name);
        let inode = self.make(origin, caller, parent, name, kind, mode, rdev, target.clone())?;
        let body = target.unwrap_or_default();
        if let Err(error) = self.publisher.store_new_locked(&inode, body, Precondition::Absent).await {
            self.known.roll_back_create(parent, name, &inode)?;
            return Err(if error.errno() == libc::ESTALE { Error::EXISTS } else { error });
        }
        if kind == Kind::Directory {
            self.settings.forget_settings_of(parent, name)?;
        }
        self.names.references().add(inode.ino);
        Ok(Attr::from(&self.names.tables().inode(inode.ino)?))
    }
}
