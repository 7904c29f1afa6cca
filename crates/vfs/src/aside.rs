//! Keeps the bytes of open files whose object is about to go.
//!
//! Under path naming an object is immutable *or gone*: before Tenon removes or replaces one that a program still
//! has open, it copies it aside inside the store, under the reserved prefix, until the last close.

use meta::{FsError, Op};
use std::sync::Arc;
use store::{CopyOptions, ObjectRef, StoreError};

use crate::layout::{stored, whole};
use crate::open_file::{OpenFile, Pin};
use crate::write::Dirty;
use crate::{Filesystem, Result};

/// Bytes set aside, to be used once their name is gone.
#[derive(Debug)]
pub(crate) struct Aside {
    pin: Arc<Pin>,
    object: ObjectRef,
}

impl Filesystem {
    /// Copies an open file's object aside, after completing its stream. `None`: there is nothing to keep. The caller
    /// holds the file's work until the name is gone.
    pub(crate) async fn set_aside(&self, file: &OpenFile, work: &mut Dirty) -> Result<Option<Aside>> {
        match work {
            // All that can be read of it is in memory.
            Dirty::Memory(_) => return Ok(None),
            Dirty::Stream(_) => match self.commit_locked(file, work).await {
                Err(error) if !work.is_clean() => return Err(error),
                _ => {}
            },
            Dirty::Clean | Dirty::Local(_) => {}
        }
        let inode = self.names.inode(file.ino)?;
        if inode.home.is_none() {
            // Its bytes are aside already.
            return Ok(None);
        }
        let Some(pin) = self.pin(&inode)? else { return Ok(None) };
        let key = self.layout.orphan(inode.ino, self.entropy.next_u64())?;
        match self.store.copy(&pin.object(), &key, CopyOptions::default()).await {
            Ok(object) => Ok(Some(Aside { pin: Arc::new(pin), object })),
            // It is gone already.
            Err(StoreError::NotFound(_) | StoreError::PreconditionFailed(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Uses the bytes set aside if the name is gone, else drops them.
    pub(crate) async fn settle_aside(
        &self,
        file: &OpenFile,
        work: &mut Dirty,
        aside: Option<Aside>,
        is_gone: bool,
    ) -> Result<()> {
        let Some(aside) = aside else { return Ok(()) };
        if is_gone && self.use_aside(file, work, &aside)? {
            return Ok(());
        }
        if let Err(error) = self.delete(&aside.object.key).await {
            tracing::warn!(%error, key = %aside.object.key, "a copy that is not needed stays behind");
        }
        Ok(())
    }

    /// From now on the open file consists of the bytes set aside; false if nobody has it open any more.
    fn use_aside(&self, file: &OpenFile, work: &mut Dirty, aside: &Aside) -> Result<bool> {
        let inode = match self.names.inode(file.ino) {
            Err(FsError::NotFound) => return Ok(false),
            inode => inode?,
        };
        let size_bytes = aside.pin.size_bytes;
        let mut content = whole(stored(&aside.object), size_bytes);
        content.iter_mut().for_each(|extent| extent.object.key = Some(aside.object.key.clone()));
        let base = inode.object().map(|object| object.etag.clone());
        let op = Op::Publish { ino: file.ino, base, content, size_bytes, mtime: None };
        self.names.commit(&self.ctx(), &op)?;
        let pin = self.pin(&self.names.inode(file.ino)?)?;
        file.repin(pin.clone());
        work.rebase(pin.map(Arc::new));
        Ok(true)
    }
}
