//! Filling of the disk cache ahead of readers.

use meta::Ino;

use crate::ops::Admin;
use crate::{Error, Result};

/// Outcome of [`Admin::warm`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Warmed {
    /// Length of the file in bytes.
    pub file_bytes: u64,
    /// Bytes that were read from the store, as they were not cached.
    pub read_bytes: u64,
}

impl Admin<'_> {
    /// Stores the bytes of a file in the disk cache, those that it does not have yet.
    ///
    /// # Errors
    ///
    /// ENOTSUP without a disk cache, EISDIR and ELOOP for other inodes than files, EIO if the store fails or the disk of the cache is full.
    pub async fn warm(&self, ino: Ino) -> Result<Warmed> {
        let fs = self.fs;
        if fs.mount.config.disk_cache.is_none() {
            return Err(Error::new(libc::ENOTSUP, "the mount has no disk cache: mount with --cache-dir"));
        }
        let opened = fs.open(ino, libc::O_RDONLY | libc::O_NOATIME).await?;
        let file = fs.names.handles().file(opened.handle)?;
        let outcome = fs.io.reader.warm(&file).await;
        let file_bytes = fs.names.tables().inode(ino).map_or(0, |inode| inode.size_bytes);
        drop(file);
        fs.release(opened.handle).await?;
        Ok(Warmed { file_bytes, read_bytes: outcome? })
    }
}
