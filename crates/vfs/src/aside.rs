//! Keeps the bytes of open files whose object is about to go.
//!
//! Under path naming an object is immutable *or gone*: before Tenon removes or replaces one that a program still
//! has open, it copies it aside inside the store, under the reserved prefix, until the last close.

use meta::{Inode, Op};
use std::sync::Arc;
use store::{CopyOptions, StoreError};

use crate::layout::{stored, whole};
use crate::open_file::OpenFile;
use crate::{Filesystem, Result};

impl Filesystem {
    /// Publishes an open file's stream, and copies its object aside. The caller holds no lock of the file.
    pub(crate) async fn set_aside(&self, inode: &Inode) -> Result<Option<Aside>> {
        let Some(file) = self.files.get(inode.ino) else { return Ok(None) };
        let mut work = file.work.lock().await;
        if matches!(&*work, crate::write::Dirty::Stream(_)) {
            self.commit_locked(&file, &mut work).await?;
        }
        let inode = self.names.inode(inode.ino)?;
        let Some(pin) = self.pin(&inode)? else { return Ok(None) };
        let aside = self.layout.orphan(inode.ino, self.entropy.next_u64())?;
        match self.store.copy(&pin.object(), &aside, CopyOptions::default()).await {
            Ok(object) => {
                let mut content = whole(stored(&object), pin.size_bytes);
                content.iter_mut().for_each(|extent| extent.object.key = Some(aside.clone()));
                let base = Some(pin.etag.clone());
                let op =
                    Op::Publish { ino: inode.ino, base, content, size_bytes: pin.size_bytes, mtime: None };
                drop(work);
                Ok(Some(Aside { file, op }))
            }
            // It is gone already: there is nothing to keep.
            Err(StoreError::NotFound(_) | StoreError::PreconditionFailed(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The name is gone: from now on the open file consists of the bytes set aside.
    pub(crate) async fn use_aside(&self, aside: Option<Aside>) -> Result<()> {
        let Some(Aside { file, op }) = aside else { return Ok(()) };
        self.names.commit(&self.ctx(), &op)?;
        let pin = self.pin(&self.names.inode(file.ino)?)?;
        file.repin(pin.clone());
        file.work.lock().await.rebase(pin.map(Arc::new));
        Ok(())
    }
}

/// Bytes set aside, to be used once their name is gone.
#[derive(Debug)]
pub(crate) struct Aside {
    file: Arc<OpenFile>,
    op: Op,
}
