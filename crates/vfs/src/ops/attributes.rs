//! `setattr`: changes of attributes and size.

use meta::{AttrChanges, Ino, Kind, Op, Origin};

use crate::attr::{Caller, Changes};
use crate::content::write::When;
use crate::followers::invalidation::Invalidation;
use crate::followers::op_log::FrontEndChange;
use crate::names::Names;
use crate::names::handles::Handle;
use crate::{Attr, Error, Filesystem, Result};

impl Filesystem {
    /// Changes attributes. A size set through a handle is published when the handle is closed, otherwise at once.
    pub async fn setattr(
        &self,
        caller: Caller,
        ino: Ino,
        changes: Changes,
        handle: Option<Handle>,
    ) -> Result<Attr> {
        self.mount.check_writable()?;
        self.views.derived.check_not_derived_directory(ino)?;
        let changes = with_set_id_dropped(&self.names, caller, ino, changes)?;
        let change = FrontEndChange::begin(&self.names);
        if let Some(size) = changes.size_bytes
            && let Err(error) = self.set_size(ino, size, handle).await
        {
            // The file may have the new length, also if its store failed.
            self.names.tell(Invalidation::Inode(ino));
            return Err(error);
        }
        if let Some(changes) = changes.attributes(self.mount.now()) {
            if changes.mtime.is_some()
                && let Some(file) = self.content.files().get(ino)
            {
                file.clear_touched();
            }
            let ops = self.names.with_export(ino, vec![Op::SetAttr { ino, changes }])?;
            let commit = || self.names.commit_together(Origin::FrontEnd, &ops);
            match changes.atime {
                Some(_) => self.names.access_times().discard_for(ino, commit)?,
                None => commit()?,
            };
            self.bucket.exports.export_soon(ino)?;
        }
        let attr = self.content.attr(self.names.tables().inode(ino)?);
        change.succeed();
        Ok(attr)
    }

    /// Removes the set-user-id and set-group-id bits of a file that was written to by a caller who may not keep them (no
    /// CAP_FSETID). Returns whether there were any; the caller must then await [`KernelCaches::forget_attributes`](crate::KernelCaches::forget_attributes).
    pub fn drop_set_id(&self, ino: Ino) -> Result<bool> {
        let mode = self.names.tables().inode(ino)?.mode;
        if without_set_id(mode) != mode {
            let changes = AttrChanges { mode: Some(without_set_id(mode)), ..AttrChanges::default() };
            let ops = self.names.with_export(ino, vec![Op::SetAttr { ino, changes }])?;
            self.names.commit_together(Origin::FrontEnd, &ops)?;
            self.bucket.exports.export_soon(ino)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Truncates or extends a file, through a handle if one is given.
    async fn set_size(&self, ino: Ino, size: u64, handle: Option<Handle>) -> Result<()> {
        if let Some(handle) = handle {
            let handle = self.names.handles().file(handle)?;
            return self.io.editor.truncate(&handle.file, size).await;
        }
        match self.names.tables().inode(ino)?.kind {
            Kind::File => {}
            Kind::Directory => return Err(Error::IS_DIRECTORY),
            _ => return Err(Error::new(libc::EINVAL, "only the size of a regular file can be set")),
        }
        self.bucket.discovery.resolve_ambiguous_write(ino).await?;
        let file = self.io.opener.open_file(ino)?;
        let outcome = match self.io.editor.truncate(&file, size).await {
            Ok(()) => self.io.publisher.commit(&file, When::Closed).await,
            Err(error) => Err(error),
        };
        file.close().await?;
        outcome
    }
}

/// Returns the changes, with the removal of the set-id bits added to a change of owner, and to a change of length by
/// any user but root. Changes that set the mode, and those of a directory, stay as they are.
fn with_set_id_dropped(names: &Names, caller: Caller, ino: Ino, changes: Changes) -> Result<Changes> {
    let changes_owner = changes.uid.is_some() || changes.gid.is_some();
    let keeps = !changes_owner && (changes.size_bytes.is_none() || caller.uid == 0);
    if keeps || changes.mode.is_some() {
        return Ok(changes);
    }
    let inode = names.tables().inode(ino)?;
    if inode.kind == Kind::Directory || without_set_id(inode.mode) == inode.mode {
        return Ok(changes);
    }
    Ok(Changes { mode: Some(without_set_id(inode.mode)), ..changes })
}

/// Returns a mode without its set-id bits. A set-group-id bit without group execute permission stays, because it means
/// mandatory locking.
pub(crate) fn without_set_id(mode: u16) -> u16 {
    let group = if u32::from(mode) & libc::S_IXGRP != 0 { libc::S_ISGID as u16 } else { 0 };
    mode & !(libc::S_ISUID as u16) & !group
}
