//! The two kinds of volumes, and the operations that differ between them as a whole.

mod by_inode;
mod by_path;
pub(crate) mod rules;

use bytes::Bytes;
use meta::{Ino, Inode, Moment, Name, Origin};
use std::time::Duration;
use store::ObjectKey;

use crate::attr::Caller;
use crate::names::handles::Opened;
use crate::volume::Naming;
use crate::volumes::rules::VolumeRules;
use crate::{Attr, Result};

pub(crate) use by_inode::InodeVolume;
pub(crate) use by_path::PathVolume;

/// A volume, by how its objects are named. Chosen when the volume is mounted.
#[derive(Debug)]
pub(crate) enum Volume {
    /// Keys are paths: names and objects change together, and other clients change them too.
    ByPath(PathVolume),
    /// Keys are made of inode numbers: names are in the metadata engine alone.
    ByInode(InodeVolume),
}

/// Returns the rules of volumes with this naming.
pub(crate) fn rules_of(naming: Naming) -> VolumeRules {
    match naming {
        Naming::FilePath => by_path::RULES,
        Naming::Inode => by_inode::RULES,
    }
}

impl Volume {
    /// Returns whether the known state of a file is new enough for an open that was requested at `asked_at`.
    pub(crate) fn is_recent(&self, parent: Ino, inode: &Inode, asked_at: Moment) -> bool {
        match self {
            Self::ByPath(volume) => volume.is_recent(parent, inode, asked_at),
            // No other client changes its files.
            Self::ByInode(_) => true,
        }
    }

    /// Creates and opens a file without a name. EOPNOTSUPP in a volume named by path.
    pub(crate) async fn create_unnamed(
        &self,
        caller: Caller,
        parent: Ino,
        mode: u16,
        flags: i32,
    ) -> Result<(Attr, Opened)> {
        match self {
            Self::ByPath(volume) => volume.refuse_unnamed(),
            Self::ByInode(volume) => volume.create_unnamed(caller, parent, mode, flags).await,
        }
    }

    /// Removes a name of a file; EISDIR if it is a directory's.
    pub(crate) async fn unlink(&self, parent: Ino, name: Name) -> Result<()> {
        match self {
            Self::ByPath(volume) => volume.unlink(parent, &name).await,
            Self::ByInode(volume) => volume.unlink(parent, name).await,
        }
    }

    /// Removes a directory; ENOTEMPTY if it is not empty.
    pub(crate) async fn rmdir(
        &self,
        origin: Origin,
        parent: Ino,
        name: Name,
        directory: &Inode,
    ) -> Result<()> {
        match self {
            Self::ByPath(volume) => volume.rmdir(origin, parent, name, directory).await,
            Self::ByInode(volume) => volume.rmdir(origin, parent, name, directory),
        }
    }

    /// Renames a name; `flags` are those of `renameat2`.
    pub(crate) async fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: u32) -> Result<()> {
        match self {
            Self::ByPath(volume) => volume.rename(from, to, flags).await,
            Self::ByInode(volume) => volume.rename(from, to, flags).await,
        }
    }

    /// Fails in a volume that has no quotas.
    pub(crate) fn check_has_quotas(&self) -> Result<()> {
        match self {
            Self::ByPath(volume) => volume.refuse_quotas(),
            Self::ByInode(_) => Ok(()),
        }
    }

    /// Fails in a volume that has no views.
    pub(crate) fn check_has_views(&self) -> Result<()> {
        match self {
            Self::ByPath(_) => Ok(()),
            Self::ByInode(volume) => volume.refuse_views(),
        }
    }

    /// Makes the objects of published files survive the loss of power.
    pub(crate) async fn sync_objects(&self) -> Result<()> {
        match self {
            Self::ByPath(volume) => volume.sync_objects().await,
            // The names are synced after this, and with write-back the objects before them.
            Self::ByInode(_) => Ok(()),
        }
    }

    /// Completes files that a mount that died left in pieces.
    pub(crate) async fn complete_interrupted(&self) -> Result<()> {
        match self {
            Self::ByPath(volume) => volume.complete_interrupted().await,
            Self::ByInode(_) => Ok(()),
        }
    }

    /// Makes files of objects that other clients stored in a volume named by inode; returns their paths.
    pub(crate) async fn import_foreign(&self) -> Result<Vec<Bytes>> {
        match self {
            // Such objects are files already.
            Self::ByPath(_) => Ok(Vec::new()),
            Self::ByInode(volume) => volume.import_foreign().await,
        }
    }

    /// Makes files of content that no file refers to in a volume named by inode; returns their paths.
    pub(crate) async fn name_content(&self, keys: &[ObjectKey]) -> Result<Vec<Bytes>> {
        match self {
            Self::ByPath(_) => Ok(Vec::new()),
            Self::ByInode(volume) => volume.name_content(keys).await,
        }
    }

    /// Starts to compare known names with the bucket in a volume named by path, with the time `every` for each request.
    pub(crate) fn list_in_background(&self, every: Duration) {
        match self {
            Self::ByPath(volume) => volume.list_in_background(every),
            // No other client changes its objects.
            Self::ByInode(_) => {}
        }
    }

    /// Returns the keys of leases that are no longer renewed; deletes them unless `only_find`.
    pub(crate) async fn collect_leases(&self, only_find: bool) -> Result<Vec<ObjectKey>> {
        match self {
            Self::ByPath(volume) => volume.collect_leases(only_find).await,
            Self::ByInode(_) => Ok(Vec::new()),
        }
    }

    /// Evicts everything that can be read from the bucket again, in a volume named by path.
    pub(crate) fn forget_learned(&self) -> Result<()> {
        match self {
            Self::ByPath(volume) => volume.forget_learned(),
            Self::ByInode(_) => Ok(()),
        }
    }
}
