//! Extended attributes.

use bytes::Bytes;
use meta::acl::{ACCESS, Acl};
use meta::{AttrChanges, FsError, Ino, Op, Origin, SETGID, XattrHow};

use crate::bucket::metadata::USER;
use crate::names::Names;
use crate::objects::OWN;
use crate::{Error, Filesystem, Result};

/// Attribute with the SELinux label. With SELinux enabled the kernel answers for file systems like this one, with an error.
const LABEL: &[u8] = b"security.selinux";

/// The prefixes of extended attributes (xattr(7)), besides those of access control lists.
const NAME_SPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

impl Filesystem {
    /// Returns the value of an extended attribute; ENODATA if there is none.
    pub async fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Bytes> {
        check_xattr_name(name)?;
        if self.views.derived.is_derived_directory(ino) {
            return Err(FsError::NoData.into());
        }
        if name == LABEL {
            return label(&self.names, ino);
        }
        if !name.starts_with(USER) {
            return Ok(self.names.tables().xattr(ino, name)?);
        }
        let inode = self.names.tables().inode(ino)?;
        match self.bucket.metadata.is_of_object(&inode, name) {
            true => Ok(self.bucket.discovery.object_xattr(&inode, name).await?.ok_or(FsError::NoData)?),
            false => Ok(self.names.tables().xattr(ino, name)?),
        }
    }

    /// Returns the names of an inode's extended attributes, except for Tenon's own.
    pub async fn listxattr(&self, ino: Ino) -> Result<Vec<Box<[u8]>>> {
        if self.views.derived.is_derived_directory(ino) {
            return Ok(Vec::new());
        }
        let names = self.bucket.discovery.all_xattrs(&self.names.tables().inode(ino)?).await?;
        Ok(names.into_iter().filter(|name| !name.starts_with(OWN)).collect())
    }

    /// Sets an extended attribute; `flags` are those of `setxattr`. An ACL set by a caller outside the file's group
    /// (`is_in_group` tests a group id) removes the set-group-id bit, as a new mode does.
    pub async fn setxattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: i32,
        is_in_group: impl FnOnce(u32) -> bool,
    ) -> Result<()> {
        self.mount.check_writable()?;
        check_xattr_name(name)?;
        self.views.derived.check_not_derived_directory(ino)?;
        let how = match flags {
            0 => XattrHow::Set,
            libc::XATTR_CREATE => XattrHow::Create,
            libc::XATTR_REPLACE => XattrHow::Replace,
            _ => return Err(Error::new(libc::EINVAL, "invalid flags for setxattr")),
        };
        let value = Bytes::copy_from_slice(value);
        let inode = self.names.tables().inode(ino)?;
        if self.bucket.metadata.is_of_object(&inode, name) {
            return self.bucket.discovery.change_object_xattr(&inode, name, Some(value), how).await;
        }
        let mut ops = Vec::with_capacity(2);
        if name == ACCESS && inode.mode & SETGID != 0 && !is_in_group(inode.gid) {
            let changes = AttrChanges { mode: Some(inode.mode & !SETGID), ..AttrChanges::default() };
            ops.push(Op::SetAttr { ino, changes });
        }
        ops.push(Op::SetXattr { ino, name: name.into(), value, how });
        // An ACL changes the mode, which is exported.
        let ops = if name == ACCESS { self.names.with_export(ino, ops)? } else { ops };
        self.names.commit_together(Origin::FrontEnd, &ops)?;
        if name == ACCESS {
            self.bucket.exports.export_soon(ino)?;
        }
        Ok(())
    }

    /// Removes an extended attribute.
    pub async fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.mount.check_writable()?;
        check_xattr_name(name)?;
        self.views.derived.check_not_derived_directory(ino)?;
        let inode = self.names.tables().inode(ino)?;
        if self.bucket.metadata.is_of_object(&inode, name) {
            return self.bucket.discovery.change_object_xattr(&inode, name, None, XattrHow::Set).await;
        }
        self.names.commit(Origin::FrontEnd, &Op::RemoveXattr { ino, name: name.into() })?;
        Ok(())
    }
}

/// Returns a label that was copied here. Without one the answer is EOPNOTSUPP: `ls` then stops asking, which it would not
/// do for ENODATA.
fn label(names: &Names, ino: Ino) -> Result<Bytes> {
    match names.tables().xattr(ino, LABEL) {
        Err(FsError::NoData) => Err(Error::new(libc::EOPNOTSUPP, "SELinux labels are not supported")),
        outcome => Ok(outcome?),
    }
}

/// Fails with EOPNOTSUPP for a name outside the known name spaces.
fn check_xattr_name(name: &[u8]) -> Result<()> {
    if Acl::is_name(name) {
        return Ok(());
    }
    if NAME_SPACES.iter().any(|space| name.starts_with(space) && name.len() > space.len()) {
        return Ok(());
    }
    Err(Error::new(libc::EOPNOTSUPP, "unsupported namespace of extended attributes"))
}
