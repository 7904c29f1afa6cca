//! Batches of the volume: the follow-up work after a merge, which is committed without this file system.

use meta::{BatchId, Ino, Kind, Seqno};
use std::collections::BTreeSet;
use std::sync::Arc;
use store::ObjectKey;

use crate::content::garbage::{batch_objects_below, unused_by_owner};
use crate::followers::invalidation::Invalidation;
use crate::followers::op_log::OpLogFollower;
use crate::layout::batch_objects;
use crate::names::name;
use crate::names::pending_merges::PendingMerge;
use crate::{Admin, Config, Error, Filesystem, Naming, Result};

/// Operations on the batches of a volume.
#[derive(Debug, Clone, Copy)]
pub struct Batches<'fs> {
    fs: &'fs Filesystem,
}

impl<'fs> Admin<'fs> {
    /// Returns the operations on the batches of the volume.
    pub fn batches(&self) -> Batches<'fs> {
        Batches { fs: self.fs }
    }
}

impl<'fs> Batches<'fs> {
    /// Returns the settings of the mount.
    pub fn config(&self) -> &'fs Config {
        &self.fs.mount.config
    }

    /// Returns the directory at a path. Fails for a volume that cannot have batches.
    pub fn directory_at(&self, path: &[u8]) -> Result<Ino> {
        if self.fs.mount.layout.naming() == Naming::FilePath {
            return Err(Error::new(
                libc::EOPNOTSUPP,
                "the volume is named by path: batches need a volume named by inode (`tenon format --naming inode`)",
            ));
        }
        let mut dir = Ino::ROOT;
        for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            let found = self.fs.names.tables().entry(dir, &name(part)?)?.ok_or(Error::NOT_FOUND)?;
            if found.kind != Kind::Directory {
                return Err(Error::new(libc::ENOTDIR, "not a directory"));
            }
            dir = found.ino;
        }
        Ok(dir)
    }

    /// Returns the names of the volume, to which the records of batches belong.
    pub fn names(&self) -> &'fs meta::Namespace {
        self.fs.names.tables()
    }

    /// Returns the context of a change of the names that no front end has made.
    pub fn context(&self) -> meta::OpContext {
        self.fs.names.context(meta::Origin::Other)
    }

    /// Makes the names that were changed so far survive a loss of power.
    pub async fn sync_names(&self) -> Result<()> {
        self.fs.names.sync_names().await
    }

    /// Makes lookups, listings and `open` in a directory, and below it, wait until the result is dropped. Kernels drop what they have cached of the
    /// directory, so that they ask again. Waits
    /// for this at most a second.
    pub async fn begin_wait_for_merge(&self, dir: Ino) -> PendingMerge {
        let pending = self.fs.names.pending_merges().begin(dir);
        let home = self.fs.names.tables().inode(dir).ok().and_then(|inode| inode.home);
        let names = match home {
            Some((parent, name)) => Invalidation::entry(parent, name.as_bytes()),
            None => Invalidation::Directory(dir),
        };
        self.fs.names.deliver(&[names, Invalidation::Attributes(dir)]).await;
        pending
    }

    /// Waits until kernels have dropped what the commits later than `after` have made stale, and deletes the `released` objects, to which no
    /// inode refers any more.
    pub async fn merged(&self, after: Seqno, released: Vec<ObjectKey>) {
        OpLogFollower::follow_commits_after(&self.fs.names, after);
        self.fs.names.deliver_patiently(&[]).await;
        for key in released {
            self.fs.content.discard(key).await;
        }
    }

    /// Deletes the objects of a batch that has ended, except for those in `shared` and those that the inode in their key uses. Returns their
    /// number.
    pub async fn delete_unused_objects(&self, id: BatchId, shared: BTreeSet<ObjectKey>) -> Result<usize> {
        let mount = &self.fs.mount;
        let prefix = batch_objects(&mount.config.prefix, id);
        let stored = batch_objects_below(mount.store.as_ref(), &mount.layout, prefix).await?;
        let (engine, layout) = (Arc::clone(self.fs.names.tables().engine()), mount.layout.clone());
        let unused = move || {
            let keys = stored.into_iter().map(|object| object.key).filter(|key| !shared.contains(key));
            Ok(unused_by_owner(engine.as_ref(), &layout, keys))
        };
        let unused = store::blocking(unused).await;
        let unused = unused.map_err(|_| Error::new(libc::EIO, "the search was interrupted"))??;
        let count = unused.len();
        for key in unused {
            self.fs.content.discard_unused(key).await;
        }
        Ok(count)
    }
}
