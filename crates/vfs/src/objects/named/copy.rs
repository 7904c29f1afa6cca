//! Copies in a volume named by inode. Content belongs to one inode, so a copy has objects of its own, which are copied inside
//! the store where that is worthwhile.

use meta::{Inode, Kind};
use std::ops::Range;
use store::{
    Attributes, CopyOptions, ObjectKey, ObjectMeta, ObjectRef, PutOptions, StoreError, Tags, byte_range,
};

use super::NamedObjects;
use super::plan::NewObject;
use crate::content::storing::StoringGuard;
use crate::objects::description::{ObjectDescription, describe_object};
use crate::objects::errors::{error_about, namespace_error_about};
use crate::objects::etag::AssignedEtag;

impl NamedObjects {
    pub(super) async fn copy(
        &self,
        from: &ObjectRef,
        to: &ObjectKey,
        options: CopyOptions,
    ) -> store::Result<ObjectRef> {
        let (inode, meta, description) = self.source(from)?;
        if from.key == *to {
            if options.attributes.is_none() && options.tags.is_none() {
                return Err(no_change());
            }
            return self.replace_description(from, options).await;
        }
        let resolved = self.keys.resolve(to)?;
        self.check_precondition_first(to, &options.precondition)?;
        let attributes = options.attributes.unwrap_or(meta.attributes);
        let tags = options.tags.unwrap_or_else(|| description.tags());
        let precondition = options.precondition;
        if resolved.last.is_none() || inode.kind != Kind::File {
            let body = self.small_body(&from.key, &inode).await?;
            return self
                .put(to, body, PutOptions { precondition, attributes, tags, ..PutOptions::default() })
                .await;
        }
        let ino = self.fs.names.new_ino(resolved.dir).map_err(error_about(to))?;
        let _stores = StoringGuard::begin(self.fs.content.storing(), ino);
        let content = self.copy_range_of(from, &inode, ino, 0..inode.size_bytes).await?;
        let (size_bytes, attributes, tags) = (inode.size_bytes, &attributes, &tags);
        let new =
            NewObject { ino, content, size_bytes, target: None, attributes, tags, etag: None, orphan: None };
        self.name_or_discard(to, &new, &precondition).await
    }

    /// Returns the inode of an object reference, if it still has that etag.
    pub(super) fn source(&self, from: &ObjectRef) -> store::Result<(Inode, ObjectMeta, ObjectDescription)> {
        let (inode, meta, description) = self.keys.retry_while_replaced(&from.key, || {
            let inode = self.keys.find_or_fail(&from.key)?;
            let (meta, description) =
                self.keys.meta_of(&from.key, &inode).map_err(namespace_error_about(&from.key))?;
            Ok((inode, meta, description))
        })?;
        if meta.object.etag != from.etag {
            return Err(StoreError::PreconditionFailed(from.key.clone()));
        }
        Ok((inode, meta, description))
    }

    /// Copies a range of an inode's bytes as content of another inode, from offset 0.
    pub(super) async fn copy_range_of(
        &self,
        from: &ObjectRef,
        inode: &Inode,
        to: meta::Ino,
        range: Range<u64>,
    ) -> store::Result<Vec<meta::Extent>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let range = byte_range::require_inside(&from.key, range, inode.size_bytes)?;
        let pin = self.fs.names.pin(inode).map_err(error_about(&from.key))?;
        let pin = pin.ok_or_else(|| StoreError::NotFound(from.key.clone()))?.slice_at(&range, 0)?;
        let file = self.fs.io.opener.open_file(inode.ino).map_err(error_about(&from.key))?;
        let copied = self.fs.io.uploader.copy_content(to, pin).await.map_err(error_about(&from.key));
        file.close().await.map_err(error_about(&from.key))?;
        copied.map_err(|error| match error {
            StoreError::NotFound(_) => StoreError::PreconditionFailed(from.key.clone()),
            error => error,
        })
    }

    async fn small_body(&self, key: &ObjectKey, inode: &Inode) -> store::Result<store::Payload> {
        use futures_util::TryStreamExt as _;
        let object = Box::pin(self.get(key, store::GetOptions::default())).await?;
        let limit = 1 << 20;
        if inode.size_bytes > limit {
            return Err(StoreError::Invalid("the marker of a directory cannot exceed 60 KiB".to_owned()));
        }
        let pieces: Vec<bytes::Bytes> = object.body.try_collect().await?;
        Ok(pieces.into_iter().collect())
    }

    /// Replaces the headers of an object; the inode and its bytes stay.
    async fn replace_description(
        &self,
        object: &ObjectRef,
        options: CopyOptions,
    ) -> store::Result<ObjectRef> {
        let key = &object.key;
        let _key_lock = self.fs.bucket.locks.key_locks().lock(&self.directory.key_to_lock(key)).await;
        let (inode, meta, before) = self.source(object)?;
        self.keys.check_precondition(key, &options.precondition, Some(&inode))?;
        let attributes = options.attributes.unwrap_or_else(|| meta.attributes.clone());
        let tags = options.tags.unwrap_or_else(|| before.tags());
        let change = self.plan_description(key, (&inode, &meta, &before), &attributes, &tags)?;
        let applied = self.commit(&change).map_err(namespace_error_about(key))?;
        self.finish_change(key, applied).await?;
        // Without content the etag comes from the inode's times, which may have changed.
        let etag =
            self.keys.etag_of(key, &self.keys.find_or_fail(key)?).map_err(namespace_error_about(key))?;
        Ok(ObjectRef::new(key.clone(), etag))
    }

    fn plan_description(
        &self,
        key: &ObjectKey,
        (inode, meta, before): (&Inode, &ObjectMeta, &ObjectDescription),
        attributes: &Attributes,
        tags: &Tags,
    ) -> store::Result<super::plan::Change> {
        let mut change = super::plan::Change::default();
        let (ino, at) = (inode.ino, before.record.at);
        let seen = self.keys.attributes_over(key, inode, attributes);
        if (seen.mode, seen.uid, seen.gid, seen.mtime) != (inode.mode, inode.uid, inode.gid, inode.mtime) {
            let (mode, uid, gid) = (Some(seen.mode), Some(seen.uid), Some(seen.gid));
            let mtime = (!inode.is_dir()).then_some(seen.mtime);
            let changes = meta::AttrChanges { mode, uid, gid, mtime, ..meta::AttrChanges::default() };
            change.ops.push(meta::Op::SetAttr { ino, changes });
        }
        let etag = &meta.object.etag;
        let given = (!inode.is_dir()).then(|| AssignedEtag::preserving(etag, inode));
        let mut description = describe_object(attributes, tags)?;
        description.bind(etag, given, (seen.mode, seen.uid, seen.gid, seen.mtime));
        description.record.at = at;
        change.ops.extend(description.replacement_ops(ino, before)?);
        Ok(change)
    }
}

/// Returns the error for a copy of an object onto itself without new attributes.
fn no_change() -> StoreError {
    StoreError::Invalid("a copy of an object onto itself changes nothing".to_owned())
}
