//! Lookup of names and attributes.

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use meta::{FsError, Ino, Kind, Op};
use store::GetOptions;

use crate::bucket::headers;
use crate::filesystem::name;
use crate::{Attr, Error, Filesystem, Result};

impl Filesystem {
    /// Looks up a name. Counts one kernel reference to the inode.
    pub async fn lookup(&self, parent: Ino, name_bytes: &[u8]) -> Result<Attr> {
        let name = name(name_bytes)?;
        self.lister.note_request(self.moment());
        let is_derived = self.derived_at(parent).is_some() || self.is_derived_name(parent, name_bytes);
        if let Some(views) = self.derived.get().filter(|_| is_derived) {
            return Box::pin(self.lookup_derived(views, parent, name)).await;
        }
        loop {
            let found = self.find(parent, &name).await?;
            let inode = self.with_exact_attributes(self.must(found)?).await?;
            if self.refer(inode.ino) {
                return Ok(self.attr(inode));
            }
        }
    }

    /// Counts one kernel reference; returns false if the inode was evicted since its lookup.
    pub(crate) fn refer(&self, ino: Ino) -> bool {
        self.references.add(ino);
        if let Err(error) = self.evict_if_needed(1) {
            tracing::debug!(%error, "evicting inodes failed");
        }
        let is_known = self.names.inode(ino).is_ok();
        if !is_known {
            self.references.forget(ino, 1);
        }
        is_known
    }

    /// Like `refer`, for many inodes.
    pub(crate) fn refer_all(&self, inos: &[Ino]) -> Result<Vec<bool>> {
        inos.iter().for_each(|ino| self.references.add(*ino));
        if let Err(error) = self.evict_if_needed(inos.len()) {
            tracing::debug!(%error, "evicting inodes failed");
        }
        let known = self.names.inodes(inos);
        let known: Vec<bool> = match known {
            Ok(known) => known.iter().map(Option::is_some).collect(),
            Err(error) => {
                for ino in inos {
                    self.references.forget(*ino, 1);
                }
                return Err(error.into());
            }
        };
        for (ino, _) in inos.iter().zip(&known).filter(|(_, is_known)| !**is_known) {
            self.references.forget(*ino, 1);
        }
        Ok(known)
    }

    /// Drops `count` kernel references.
    pub fn forget(&self, ino: Ino, count: u64) {
        if let Some(views) = self.derived_at(ino) {
            return views.forget(ino, count);
        }
        if !self.references.forget(ino, count) {
            return;
        }
        if let Some(views) = self.derived.get() {
            views.forget_file(ino);
        }
        if let Err(error) = self.evict_forgotten(ino) {
            tracing::debug!(%error, "evicting an inode failed; it stays in memory");
        }
    }

    /// Returns the attributes of an inode, not older than the revalidation time.
    pub async fn getattr(&self, ino: Ino) -> Result<Attr> {
        if let Some(views) = self.derived_at(ino).filter(|_| ino != Ino::ROOT) {
            return self.derived_attr(views, ino).await;
        }
        let inode = match self.names.inode(ino) {
            Err(FsError::NotFound) => {
                return self.references.removed_directory(ino).ok_or(Error::NOT_FOUND);
            }
            inode => inode?,
        };
        if ino != Ino::ROOT {
            // `mount` and health checks stat the root to see whether the mount answers; that is no sign of use.
            self.lister.note_request(self.moment());
        }
        let inode = match inode.home.clone() {
            Some((parent, name)) if !self.has_unpublished_writes(ino) => {
                match Box::pin(self.revalidate_shown(ino)).await? {
                    Some(inode) => inode,
                    None => {
                        let found = self.find(parent, &name).await?;
                        self.with_exact_attributes(self.must(found.filter(|found| found.ino == ino))?).await?
                    }
                }
            }
            _ => inode,
        };
        Ok(self.attr(inode))
    }

    /// Returns the target of a symbolic link.
    pub async fn readlink(&self, ino: Ino) -> Result<Bytes> {
        let inode = self.names.inode(ino)?;
        if inode.kind != Kind::Symlink {
            return Err(Error::new(libc::EINVAL, "not a symbolic link"));
        }
        self.record_access(ino);
        if let Some(target) = inode.target {
            return Ok(target);
        }
        let looked_at = self.moment();
        let object = self.store.get(&self.layout.key(&self.names, &inode)?, GetOptions::default()).await?;
        let mut seen = headers::observed(&object.meta, false, &self.defaults, looked_at);
        let pieces: Vec<Bytes> = object.body.try_collect().await?;
        let target = seen.target.get_or_insert_with(|| pieces.concat().into()).clone();
        if seen.kind == Kind::Symlink {
            match self.names.commit(&self.ctx(), &Op::Refresh { ino, seen }) {
                Ok(_) | Err(FsError::Late | FsError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(target)
    }
}
