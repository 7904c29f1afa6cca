//! Lookup of names and attributes.

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use meta::{FsError, Ino, Kind, Op, Origin};
use store::GetOptions;

use crate::bucket::headers;
use crate::names::name;
use crate::{Attr, Error, Filesystem, Result};

impl Filesystem {
    /// Looks up a name. Counts one kernel reference to the inode.
    pub async fn lookup(&self, parent: Ino, name_bytes: &[u8]) -> Result<Attr> {
        let name = name(name_bytes)?;
        self.names.pending_merges().wait(self.names.tables(), parent).await;
        self.bucket.lister.state().note_request(self.mount.moment());
        let is_derived = self.views.derived.derived_at(parent).is_some()
            || self.views.derived.is_derived_name(parent, name_bytes);
        if let Some(views) = self.views.derived.attached().filter(|_| is_derived) {
            return Box::pin(self.views.lookup_derived(views, parent, name)).await;
        }
        loop {
            let found = self.bucket.discovery.find(parent, &name).await?;
            let inode =
                self.bucket.discovery.with_exact_attributes(self.bucket.discovery.must(found)?).await?;
            if self.bucket.name_evictor.refer(inode.ino) {
                return Ok(self.content.attr(inode));
            }
        }
    }

    /// Removes kernel references.
    pub fn forget(&self, ino: Ino, count: u64) {
        self.bucket.name_evictor.forget(ino, count);
    }

    /// Returns the attributes of an inode, which are at most as old as an answer of a lookup. ENOENT if its name leads
    /// elsewhere by now.
    pub async fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.names.pending_merges().wait(self.names.tables(), ino).await;
        if let Some(views) = self.views.derived.derived_at(ino).filter(|_| ino != Ino::ROOT) {
            return self.views.derived_attr(views, ino).await;
        }
        let inode = match self.names.tables().inode(ino) {
            Err(FsError::NotFound) => {
                return self.names.references().removed_directory(ino).ok_or(Error::NOT_FOUND);
            }
            inode => inode?,
        };
        if ino != Ino::ROOT {
            // The command `mount` and health checks stat the root to see whether the mount answers; that is no sign of
            // use.
            self.bucket.lister.state().note_request(self.mount.moment());
        }
        let inode = match inode.home.clone() {
            Some((parent, name))
                if self.mount.rules.follows_bucket && !self.content.has_unpublished_writes(ino) =>
            {
                match Box::pin(self.views.revalidate_shown(ino)).await? {
                    Some(inode) => inode,
                    None => {
                        let found = self.bucket.discovery.find(parent, &name).await?;
                        self.bucket
                            .discovery
                            .with_exact_attributes(
                                self.bucket.discovery.must(found.filter(|found| found.ino == ino))?,
                            )
                            .await?
                    }
                }
            }
            _ => inode,
        };
        Ok(self.content.attr(inode))
    }

    /// Returns the target of a symbolic link.
    pub async fn readlink(&self, ino: Ino) -> Result<Bytes> {
        let inode = self.names.tables().inode(ino)?;
        if inode.kind != Kind::Symlink {
            return Err(Error::new(libc::EINVAL, "not a symbolic link"));
        }
        self.content.record_access(ino);
        if let Some(target) = inode.target {
            return Ok(target);
        }
        let looked_at = self.mount.moment();
        let object = self
            .mount
            .store
            .get(&self.mount.layout.key(self.names.tables(), &inode)?, GetOptions::default())
            .await?;
        let mut seen = headers::observed(&object.meta, false, &self.mount.defaults, looked_at);
        let pieces: Vec<Bytes> = object.body.try_collect().await?;
        let target = seen.target.get_or_insert_with(|| pieces.concat().into()).clone();
        if seen.kind == Kind::Symlink {
            match self.names.commit(Origin::Other, &Op::Refresh { ino, seen }) {
                Ok(_) | Err(FsError::Late | FsError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(target)
    }
}
