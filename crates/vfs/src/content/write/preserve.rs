//! Preserves the bytes of open files whose object is about to be removed or replaced.
//!
//! In a volume named by path an object is immutable *or gone*. Before Tenon removes or replaces an object that a program has
//! open, it makes a copy in the store, under the reserved prefix. The copy is kept until the last close.

use meta::{Extent, FsError, Ino, Op, Origin};
use std::sync::Arc;
use store::{CopyOptions, ObjectRef, StoreError};

use crate::content::open_file::OpenFile;
use crate::content::pin::Pin;
use crate::content::write::publisher::Publisher;
use crate::content::write::{When, WriteState};
use crate::layout::{relocated, stored_at};
use crate::{Error, Result};

/// A copy of an open file's object. The open file reads from it until the removal of the name has succeeded or failed.
#[derive(Debug)]
pub(crate) struct PreservedCopy {
    /// The copy.
    object: ObjectRef,
    /// The file's extents, which refer to the copy.
    content: Vec<Extent>,
    size_bytes: u64,
}

impl Publisher {
    /// Copies an open file's object to a key under the reserved prefix, and makes the file read from the copy. A running upload
    /// stream is completed first. Returns `None` if there is nothing to preserve. The caller holds the file's write state until
    /// the name is gone.
    pub(crate) async fn preserve_object(
        &self,
        file: &OpenFile,
        state: &mut WriteState,
    ) -> Result<Option<PreservedCopy>> {
        match state {
            // All bytes of the file are in memory.
            WriteState::Memory(_) => return Ok(None),
            WriteState::Stream(_) => match self.commit_locked(file, state, When::Closed).await {
                Err(error) if !state.is_clean() => return Err(error),
                _ => {}
            },
            WriteState::Clean | WriteState::Local(_) => {}
        }
        let (inode, stored) = self.names.tables().content(file.ino)?;
        if inode.home.is_none() || !self.names.lies_at_path(&inode)? {
            // The bytes are already in a preserved copy, or under a key that no other file uses.
            return Ok(None);
        }
        let Some(old) = self.names.object(&inode)? else { return Ok(None) };
        let (bucket, unique) = (self.content.bucket_of(inode.ino)?, self.mount.entropy.next_u64());
        let key = self.mount.layout.orphan_key(bucket.as_ref(), inode.ino, unique)?;
        match self.mount.store.copy(&old, &key, CopyOptions::default()).await {
            Ok(object) => {
                let content = relocated(&stored, &stored_at(&object));
                let size_bytes = inode.size_bytes;
                let copy = Pin::of_extents(&content, size_bytes, None);
                state.rebase(Some(Arc::new(copy.clone())));
                file.repin(|| Ok::<_, Error>(Some(copy)))?;
                Ok(Some(PreservedCopy { object, content, size_bytes }))
            }
            // The object is already gone.
            Err(StoreError::NotFound(_) | StoreError::PreconditionFailed(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps the copy if the name is gone. Otherwise makes the file read from its object again, and deletes the copy.
    pub(crate) async fn finish_preserving(
        &self,
        file: &OpenFile,
        state: &mut WriteState,
        copy: Option<PreservedCopy>,
        is_gone: bool,
    ) -> Result<()> {
        let Some(copy) = copy else { return Ok(()) };
        if is_gone && self.publish_preserved_copy(file.ino, &copy)? {
            return Ok(());
        }
        if !is_gone && !self.is_still_there(file.ino).await {
            // The operation failed, and yet the object is gone: open handles have only the copy.
            return Ok(());
        }
        file.repin(|| self.names.pin_of(file.ino)).or_else(|_| file.repin(|| Ok::<_, Error>(None)))?;
        state.rebase(file.pin().0);
        if let Err(error) = self.content.delete(&copy.object.key).await {
            tracing::warn!(%error, key = %copy.object.key, "cannot delete the copy of an object that was kept for open files; it stays in the bucket, and no file needs it");
        }
        Ok(())
    }

    /// Returns whether the bucket has the object that an inode refers to. Returns false if the bucket does not answer.
    async fn is_still_there(&self, ino: Ino) -> bool {
        let object = self.names.tables().inode(ino).ok().and_then(|inode| self.names.object(&inode).ok()?);
        let Some(object) = object else { return false };
        self.mount.store.head(&object.key).await.is_ok_and(|found| found.object.etag == object.etag)
    }

    /// Makes an inode without a name refer to the preserved copy. Returns false if no handle is open any more.
    fn publish_preserved_copy(&self, ino: Ino, copy: &PreservedCopy) -> Result<bool> {
        let inode = match self.names.tables().inode(ino) {
            Err(FsError::NotFound) => return Ok(false),
            inode => inode?,
        };
        let base = inode.object().map(|object| object.etag.clone());
        let (content, size_bytes) = (copy.content.clone(), copy.size_bytes);
        self.names
            .commit(Origin::Bookkeeping, &Op::Publish { ino, base, content, size_bytes, mtime: None })?;
        Ok(true)
    }
}
