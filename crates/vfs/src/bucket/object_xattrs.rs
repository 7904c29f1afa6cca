//! Extended attributes that are the metadata and tags of objects.

use bytes::Bytes;
use meta::{FsError, Ino, Inode, Kind, XattrHow};
use std::collections::BTreeSet;

use crate::Result;
use crate::bucket::discovery::Discovery;
use crate::bucket::metadata::cache::{Entry, has_tags};
use crate::bucket::metadata::{Described, TAG, USER};

impl Discovery {
    /// Returns the metadata of an inode's object, at most as old as the revalidation time. Returns empty metadata if no object
    /// is stored.
    pub(crate) async fn description_of(&self, inode: &Inode) -> Result<Described> {
        let may_have_object = matches!(inode.kind, Kind::File | Kind::Directory);
        let Some(object) = self.names.object(inode)?.filter(|_| may_have_object) else {
            return Ok(Described::default());
        };
        let now = self.mount.moment();
        let known = self.metadata.cache().get(inode.ino, &object.etag, now, self.mount.config.metadata_ttl);
        let mut entry = match known {
            Some(entry) => entry,
            None => {
                let Some(meta) = self.mount.store.find(&object.key).await? else {
                    return Ok(Described::default());
                };
                if meta.object.etag != object.etag {
                    self.revalidate(inode).await?;
                }
                self.metadata.cache().insert_observed(inode.ino, &meta, now);
                let (etag, lacks_tags) = (meta.object.etag.clone(), has_tags(&meta));
                Entry { etag, described: meta.attributes.into(), lacks_tags, seen_at: now }
            }
        };
        if entry.lacks_tags {
            entry.described.tags = self.mount.store.tags(&object.key).await?;
            entry.lacks_tags = false;
            self.metadata.cache().insert(inode.ino, entry.clone());
        }
        Ok(entry.described)
    }
}

impl Discovery {
    /// Returns the value of an attribute that belongs to the object; `None` if there is none. EOPNOTSUPP for a tag if
    /// the store has no tags.
    pub(crate) async fn object_xattr(&self, inode: &Inode, name: &[u8]) -> Result<Option<Bytes>> {
        if name.starts_with(TAG) {
            self.metadata.ensure_store_has_tags().await?;
        }
        if let Some(pending) = self.metadata.pending_changes(inode.ino)?.remove(name) {
            self.resume_export(inode.ino)?;
            return Ok(pending);
        }
        if let Some(value) = self.description_of(inode).await?.xattrs().remove(name) {
            return Ok(Some(value));
        }
        match self.names.tables().xattr(inode.ino, name) {
            Err(FsError::NoData) => Ok(None),
            value => Ok(Some(value?)),
        }
    }

    /// Returns the names of an inode's extended attributes, including Tenon's own.
    pub(crate) async fn all_xattrs(&self, inode: &Inode) -> Result<BTreeSet<Box<[u8]>>> {
        let mut names: BTreeSet<Box<[u8]>> = self.names.tables().xattrs(inode.ino)?.into_iter().collect();
        if !self.metadata.is_of_object(inode, USER) {
            return Ok(names);
        }
        let described = self.description_of(inode).await?.xattrs();
        names.extend(described.into_keys().map(Vec::into_boxed_slice));
        let waiting = self.metadata.pending_changes(inode.ino)?;
        if !waiting.is_empty() {
            self.resume_export(inode.ino)?;
        }
        for (name, value) in waiting {
            match value {
                Some(_) => drop(names.insert(name.into_boxed_slice())),
                None => drop(names.remove(&name[..])),
            }
        }
        Ok(names)
    }

    /// Sets or removes an attribute that belongs to the object. The object is updated later.
    pub(crate) async fn change_object_xattr(
        &self,
        inode: &Inode,
        name: &[u8],
        value: Option<Bytes>,
        how: XattrHow,
    ) -> Result<()> {
        if name.starts_with(TAG) {
            self.metadata.ensure_store_has_tags().await?;
        }
        if how != XattrHow::Set || value.is_none() {
            let is_there = self.object_xattr(inode, name).await?.is_some();
            match how {
                XattrHow::Create if is_there => return Err(FsError::Exists.into()),
                XattrHow::Create | XattrHow::Set if value.is_some() => {}
                _ if is_there => {}
                _ => return Err(FsError::NoData.into()),
            }
        }
        self.metadata.set_pending(inode.ino, name, value)?;
        self.exports.export_soon(inode.ino)
    }

    /// Schedules the export of changes that an earlier mount left pending.
    fn resume_export(&self, ino: Ino) -> Result<()> {
        let is_left = !self.mount.config.read_only && !self.names.awaits_export(ino);
        if is_left { self.exports.export_later(ino) } else { Ok(()) }
    }
}
