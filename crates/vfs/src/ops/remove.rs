//! Removing files and directories.

use bytes::Bytes;
use meta::{Ino, Inode, Kind, Op};
use store::{ListRequest, ObjectKey, Precondition, StoreError};

use crate::filesystem::name;
use crate::{Error, Filesystem, Result};

impl Filesystem {
    /// Removes a file; who has it open reads and writes on.
    pub async fn unlink(&self, parent: Ino, name_bytes: &[u8]) -> Result<()> {
        self.writable()?;
        let name = name(name_bytes)?;
        let inode = self.must(self.find(parent, &name).await?)?;
        if inode.kind == Kind::Directory {
            return Err(Error::IS_DIRECTORY);
        }
        self.keep_directory(parent).await?;
        let aside = self.set_aside(&inode).await?;
        let inode = self.names.inode(inode.ino)?;
        if inode.object().is_some() {
            self.delete(&self.layout.key(&self.names, &inode)?).await?;
        }
        self.removed.insert(parent, &name, self.now());
        self.exports.remove(inode.ino);
        let keep = self.files.get(inode.ino).is_some();
        self.names.commit(&self.ctx(), &Op::Unlink { parent, name, keep })?;
        if !keep {
            self.chunks.forget(inode.ino);
        }
        self.use_aside(aside).await
    }

    /// Removes an empty directory.
    pub async fn rmdir(&self, parent: Ino, name_bytes: &[u8]) -> Result<()> {
        self.writable()?;
        let name = name(name_bytes)?;
        let inode = self.must(self.find(parent, &name).await?)?;
        if inode.kind != Kind::Directory {
            return Err(Error::NOT_DIRECTORY);
        }
        self.must_be_empty(&inode).await?;
        self.keep_directory(parent).await?;
        if let Ok(marker) = self.layout.key(&self.names, &inode) {
            self.delete(&marker).await?;
        }
        self.removed.insert(parent, &name, self.now());
        self.exports.remove(inode.ino);
        let removed = self.names.commit(&self.ctx(), &Op::Rmdir { parent, name });
        if removed.is_err() {
            // Somebody made an entry in between: the directory stays, with its marker.
            self.store_new(&inode, Bytes::new()).await?;
        }
        removed?;
        self.directories.remove(inode.ino);
        Ok(())
    }

    /// Asks the bucket whether a directory has anything in it but its marker.
    pub(crate) async fn must_be_empty(&self, inode: &Inode) -> Result<()> {
        let prefix = self.layout.directory(&self.names, inode.ino)?;
        let request = ListRequest {
            prefix: Bytes::copy_from_slice(prefix.as_bytes()),
            limit: 2,
            ..ListRequest::default()
        };
        let page = self.store.list(request).await?;
        if page.entries.iter().any(|entry| entry.text() != prefix.as_bytes()) {
            return Err(Error::NOT_EMPTY);
        }
        if !self.names.entries(inode.ino, None, 1)?.is_empty() {
            // The bucket has nothing: what is still known here, and not being written, is gone.
            self.learn_page(inode.ino, &prefix, &self.directories.get(inode.ino), b"").await?;
        }
        if self.names.entries(inode.ino, None, 1)?.is_empty() { Ok(()) } else { Err(Error::NOT_EMPTY) }
    }

    /// A directory that only its last entry's key names gets a marker before that entry leaves.
    pub(crate) async fn keep_directory(&self, dir: Ino) -> Result<()> {
        if dir == Ino::ROOT {
            return Ok(());
        }
        let inode = self.names.inode(dir)?;
        if inode.object().is_some() || self.names.entries(dir, None, 2)?.len() > 1 {
            return Ok(());
        }
        self.store_new(&inode, Bytes::new()).await
    }

    pub(crate) async fn delete(&self, key: &ObjectKey) -> Result<()> {
        match self.store.delete(key, Precondition::None).await {
            Ok(()) | Err(StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
