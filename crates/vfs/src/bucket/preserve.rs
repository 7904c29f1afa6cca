//! Keeps the bytes of open files whose object is about to go.
//!
//! Under path naming an object is immutable *or gone*: before Tenon removes or replaces one that a program still
//! has open, it copies it aside inside the store, under the reserved prefix, until the last close.

use meta::{Extent, FsError, Ino, Op};
use std::sync::Arc;
use store::{CopyOptions, ObjectRef, StoreError};

use crate::content::open_file::OpenFile;
use crate::content::pin::Pin;
use crate::content::write::{Dirty, When};
use crate::layout::{relocated, stored_at};
use crate::{Error, Filesystem, Result};

/// Bytes set aside, which the open file consists of until it is settled whether their name goes.
#[derive(Debug)]
pub(crate) struct PreservedCopy {
    object: ObjectRef,
    content: Vec<Extent>,
    size_bytes: u64,
}

impl Filesystem {
    /// Copies an open file's object aside, after completing its stream; the copy is read from now on. `None`: there
    /// is nothing to keep. The caller holds the file's work until the name is gone.
    pub(crate) async fn preserve_object(
        &self,
        file: &OpenFile,
        work: &mut Dirty,
    ) -> Result<Option<PreservedCopy>> {
        match work {
            // All that can be read of it is in memory.
            Dirty::Memory(_) => return Ok(None),
            Dirty::Stream(_) => match self.commit_locked(file, work, When::Closed).await {
                Err(error) if !work.is_clean() => return Err(error),
                _ => {}
            },
            Dirty::Clean | Dirty::Local(_) => {}
        }
        let (inode, stored) = self.names.content(file.ino)?;
        if inode.home.is_none() || !self.lies_at_path(&inode)? {
            // Its bytes are aside already, or under a key that is theirs alone.
            return Ok(None);
        }
        let Some(old) = self.object(&inode)? else { return Ok(None) };
        let key = self.layout.orphan(inode.ino, self.entropy.next_u64())?;
        match self.store.copy(&old, &key, CopyOptions::default()).await {
            Ok(object) => {
                let content = relocated(&stored, &stored_at(&object));
                let size_bytes = inode.size_bytes;
                let copy = Pin::spread(&content, size_bytes, None);
                work.rebase(Some(Arc::new(copy.clone())));
                file.repin(|| Ok::<_, Error>(Some(copy)))?;
                Ok(Some(PreservedCopy { object, content, size_bytes }))
            }
            // It is gone already.
            Err(StoreError::NotFound(_) | StoreError::PreconditionFailed(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps the bytes set aside if the name is gone, else goes back to the object and drops them.
    pub(crate) async fn finish_preserving(
        &self,
        file: &OpenFile,
        work: &mut Dirty,
        aside: Option<PreservedCopy>,
        is_gone: bool,
    ) -> Result<()> {
        let Some(aside) = aside else { return Ok(()) };
        if is_gone && self.publish_preserved_copy(file.ino, &aside)? {
            return Ok(());
        }
        if !is_gone && !self.is_still_there(file.ino).await {
            // It did not succeed, and yet the object went: what is aside is all there is for who has it open.
            return Ok(());
        }
        file.repin(|| self.pin_of(file.ino)).or_else(|_| file.repin(|| Ok::<_, Error>(None)))?;
        work.rebase(file.pin().0);
        if let Err(error) = self.delete(&aside.object.key).await {
            tracing::warn!(%error, key = %aside.object.key, "a copy that is not needed stays behind");
        }
        Ok(())
    }

    /// Whether the bucket is known to have the object that an inode consists of.
    async fn is_still_there(&self, ino: Ino) -> bool {
        let object = self.names.inode(ino).ok().and_then(|inode| self.object(&inode).ok()?);
        let Some(object) = object else { return false };
        self.store.head(&object.key).await.is_ok_and(|found| found.object.etag == object.etag)
    }

    /// The inode without a name consists of the bytes set aside; false if nobody has it open any more.
    fn publish_preserved_copy(&self, ino: Ino, aside: &PreservedCopy) -> Result<bool> {
        let inode = match self.names.inode(ino) {
            Err(FsError::NotFound) => return Ok(false),
            inode => inode?,
        };
        let base = inode.object().map(|object| object.etag.clone());
        let (content, size_bytes) = (aside.content.clone(), aside.size_bytes);
        self.names.commit(&self.ctx(), &Op::Publish { ino, base, content, size_bytes, mtime: None })?;
        Ok(true)
    }
}
