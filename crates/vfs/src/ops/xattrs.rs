//! Extended attributes.

use bytes::Bytes;
use meta::acl::{ACCESS, Acl};
use meta::{AttrChanges, FsError, Ino, Op, SETGID, XattrHow};

use crate::bucket::metadata::USER;
use crate::objects::OWN;
use crate::{Error, Filesystem, Result};

/// Where a label of SELinux would be. With SELinux the kernel answers for file systems like this one: that there are none.
const LABEL: &[u8] = b"security.selinux";

/// What each kind of name begins with (xattr(7)).
const NAME_SPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

impl Filesystem {
    /// The value of an extended attribute.
    pub async fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Bytes> {
        self.must_keep(name)?;
        if self.is_derived_directory(ino) {
            return Err(FsError::NoData.into());
        }
        if name == LABEL {
            return self.label(ino);
        }
        if !name.starts_with(USER) {
            return Ok(self.names.xattr(ino, name)?);
        }
        let inode = self.names.inode(ino)?;
        match self.is_of_object(&inode, name) {
            true => Ok(self.object_xattr(&inode, name).await?.ok_or(FsError::NoData)?),
            false => Ok(self.names.xattr(ino, name)?),
        }
    }

    /// The names of an inode's extended attributes, apart from what Tenon keeps in some for itself.
    pub async fn listxattr(&self, ino: Ino) -> Result<Vec<Box<[u8]>>> {
        if self.is_derived_directory(ino) {
            return Ok(Vec::new());
        }
        let names = self.all_xattrs(&self.names.inode(ino)?).await?;
        Ok(names.into_iter().filter(|name| !name.starts_with(OWN)).collect())
    }

    /// Sets an extended attribute; `flags` are `setxattr`'s. An ACL that is set by somebody who is not in the file's
    /// group, which `is_in_group` knows of a group id, takes the set-group-id bit away, as a new mode does.
    pub async fn setxattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: i32,
        is_in_group: impl FnOnce(u32) -> bool,
    ) -> Result<()> {
        self.writable()?;
        self.must_keep(name)?;
        self.check_not_derived_directory(ino)?;
        let how = match flags {
            0 => XattrHow::Set,
            libc::XATTR_CREATE => XattrHow::Create,
            libc::XATTR_REPLACE => XattrHow::Replace,
            _ => return Err(Error::new(libc::EINVAL, "an extended attribute is created or replaced")),
        };
        let value = Bytes::copy_from_slice(value);
        let inode = self.names.inode(ino)?;
        if self.is_of_object(&inode, name) {
            return self.change_object_xattr(&inode, name, Some(value), how).await;
        }
        let mut ops = Vec::with_capacity(2);
        if name == ACCESS && inode.mode & SETGID != 0 && !is_in_group(inode.gid) {
            let changes = AttrChanges { mode: Some(inode.mode & !SETGID), ..AttrChanges::default() };
            ops.push(Op::SetAttr { ino, changes });
        }
        ops.push(Op::SetXattr { ino, name: name.into(), value, how });
        // The mode follows the list.
        let ops = if name == ACCESS { self.with_export(ino, ops)? } else { ops };
        self.names.commit_together(&self.ctx(), &ops)?;
        if name == ACCESS {
            self.export_soon(ino)?;
        }
        Ok(())
    }

    /// Removes an extended attribute.
    pub async fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.writable()?;
        self.must_keep(name)?;
        self.check_not_derived_directory(ino)?;
        let inode = self.names.inode(ino)?;
        if self.is_of_object(&inode, name) {
            return self.change_object_xattr(&inode, name, None, XattrHow::Set).await;
        }
        self.names.commit(&self.ctx(), &Op::RemoveXattr { ino, name: name.into() })?;
        Ok(())
    }

    /// A label that somebody has copied here. Where there is none `ls` asks for no other file's, if it hears that there are no labels
    /// here, instead of that this file has none.
    fn label(&self, ino: Ino) -> Result<Bytes> {
        match self.names.xattr(ino, LABEL) {
            Err(FsError::NoData) => Err(Error::new(libc::EOPNOTSUPP, "there are no labels here")),
            outcome => Ok(outcome?),
        }
    }

    fn must_keep(&self, name: &[u8]) -> Result<()> {
        if Acl::is_name(name) {
            return Ok(());
        }
        if NAME_SPACES.iter().any(|space| name.starts_with(space) && name.len() > space.len()) {
            return Ok(());
        }
        Err(Error::new(libc::EOPNOTSUPP, "no such name space of extended attributes"))
    }
}
