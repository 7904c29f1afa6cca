//! Extended attributes.

use crate::adapter::Adapter;
use crate::operations::Operation;
use crate::reply::{Answer, failed};
use crate::{convert, groups};
use fuser::{Errno, INodeNo, ReplyEmpty, ReplyXattr, Request};
use vfs::Error;

impl Adapter {
    pub(crate) fn get_xattr(&self, ino: INodeNo, name: &[u8], size: u32, reply: ReplyXattr) {
        self.count(Operation::GetXattr);
        answer(self.fs.getxattr(convert::ino(ino), name), size, reply);
    }

    /// The names, each with a NUL after it.
    pub(crate) fn list_xattrs(&self, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.count(Operation::ListXattr);
        let listed = self.fs.listxattr(convert::ino(ino));
        answer(
            listed
                .map(|names| names.iter().flat_map(|name| [name, &b"\0"[..]].concat()).collect::<Vec<u8>>()),
            size,
            reply,
        );
    }

    pub(crate) fn set_xattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &[u8],
        value: &[u8],
        flags: i32,
        reply: ReplyEmpty,
    ) {
        self.count(Operation::SetXattr);
        let is_in_group = |gid| groups::has(request, gid);
        reply.answer(self.fs.setxattr(convert::ino(ino), name, value, flags, is_in_group));
    }

    pub(crate) fn remove_xattr(&self, ino: INodeNo, name: &[u8], reply: ReplyEmpty) {
        self.count(Operation::RemoveXattr);
        reply.answer(self.fs.removexattr(convert::ino(ino), name));
    }
}

/// A caller with no room asks how much there must be.
fn answer(value: Result<impl AsRef<[u8]>, Error>, size: u32, reply: ReplyXattr) {
    match value {
        Err(error) => reply.error(failed(&error)),
        Ok(value) => match value.as_ref() {
            value if size == 0 => reply.size(value.len() as u32),
            value if value.len() > size as usize => reply.error(Errno::ERANGE),
            value => reply.data(value),
        },
    }
}
