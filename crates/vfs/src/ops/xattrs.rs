//! Extended attributes.

use bytes::Bytes;
use meta::{Ino, Op, XattrHow};

use crate::{Error, Filesystem, Result};

/// What each kind of name begins with (xattr(7)).
const NAME_SPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];

impl Filesystem {
    /// The value of an extended attribute.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Bytes> {
        self.must_keep(name)?;
        Ok(self.names.xattr(ino, name)?)
    }

    /// The names of an inode's extended attributes.
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<Box<[u8]>>> {
        Ok(self.names.xattrs(ino)?)
    }

    /// Sets an extended attribute; `flags` are `setxattr`'s.
    pub fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], flags: i32) -> Result<()> {
        self.writable()?;
        self.must_keep(name)?;
        let how = match flags {
            0 => XattrHow::Set,
            libc::XATTR_CREATE => XattrHow::Create,
            libc::XATTR_REPLACE => XattrHow::Replace,
            _ => return Err(Error::new(libc::EINVAL, "an extended attribute is created or replaced")),
        };
        let op = Op::SetXattr { ino, name: name.into(), value: Bytes::copy_from_slice(value), how };
        self.names.commit(&self.ctx(), &op)?;
        Ok(())
    }

    /// Removes an extended attribute.
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.writable()?;
        self.must_keep(name)?;
        self.names.commit(&self.ctx(), &Op::RemoveXattr { ino, name: name.into() })?;
        Ok(())
    }

    fn must_keep(&self, name: &[u8]) -> Result<()> {
        if NAME_SPACES.iter().any(|space| name.starts_with(space) && name.len() > space.len()) {
            return Ok(());
        }
        Err(Error::new(libc::EOPNOTSUPP, "no such name space of extended attributes"))
    }
}
