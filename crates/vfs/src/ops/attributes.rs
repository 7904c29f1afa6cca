//! Changes of attributes and size.

use meta::{Ino, Kind, Op};

use crate::attr::{Caller, Changes};
use crate::handles::Handle;
use crate::{Attr, Error, Filesystem, Result};

impl Filesystem {
    /// Changes attributes. A size through a handle is published when that is closed, without one at once.
    pub async fn setattr(
        &self,
        _: Caller,
        ino: Ino,
        changes: Changes,
        handle: Option<Handle>,
    ) -> Result<Attr> {
        self.writable()?;
        if let Some(size) = changes.size_bytes {
            self.set_size(ino, size, handle).await?;
        }
        if let Some(changes) = changes.attributes(self.now()) {
            if changes.mtime.is_some()
                && let Some(file) = self.files.get(ino)
            {
                file.untouch();
            }
            self.names.commit(&self.ctx(), &Op::SetAttr { ino, changes })?;
            self.export_later(ino)?;
        }
        Ok(Attr::from(&self.seen(self.names.inode(ino)?)))
    }

    async fn set_size(&self, ino: Ino, size: u64, handle: Option<Handle>) -> Result<()> {
        if let Some(handle) = handle {
            let handle = self.handles.file(handle)?;
            return self.truncate(&handle.file, size).await;
        }
        match self.names.inode(ino)?.kind {
            Kind::File => {}
            Kind::Directory => return Err(Error::IS_DIRECTORY),
            _ => return Err(Error::new(libc::EINVAL, "only regular files have a size to set")),
        }
        let file = self.open_file(ino)?;
        let outcome = match self.truncate(&file, size).await {
            Ok(()) => self.commit(&file).await,
            Err(error) => Err(error),
        };
        self.close_file(&file).await?;
        outcome
    }
}
