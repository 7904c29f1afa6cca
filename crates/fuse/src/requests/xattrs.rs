//! Requests for extended attributes.

use crate::meter::InProgress;
use crate::operations::Operation;
use crate::request_handler::RequestHandler;
use crate::virtual_files::NO_ATTRIBUTE;
use crate::{convert, requester};
use fuser::{Errno, INodeNo, ReplyEmpty, ReplyXattr, Request};
use std::sync::Arc;
use vfs::Error;

impl RequestHandler {
    pub(crate) fn get_xattr(&self, ino: INodeNo, name: &[u8], size: u32, reply: ReplyXattr) {
        let (fs, name) = (Arc::clone(&self.fs), name.to_vec());
        let mut request = self.start(Operation::GetXattr);
        if self.virtual_at(ino.0).is_some() {
            return reply.error(request.refuse(&NO_ATTRIBUTE));
        }
        self.run(request.cause(), async move {
            reply_with_value(fs.getxattr(convert::ino(ino), &name).await, size, request, reply);
        });
    }

    /// Replies with the names, each followed by a NUL.
    pub(crate) fn list_xattrs(&self, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let fs = Arc::clone(&self.fs);
        let joined = |names: Vec<Box<[u8]>>| {
            names.iter().flat_map(|name| [name, &b"\0"[..]].concat()).collect::<Vec<u8>>()
        };
        let is_virtual = self.virtual_at(ino.0).is_some();
        let request = self.start(Operation::ListXattr);
        self.run(request.cause(), async move {
            let names = match is_virtual {
                true => Ok(Vec::new()),
                false => fs.listxattr(convert::ino(ino)).await,
            };
            reply_with_value(names.map(joined), size, request, reply);
        });
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
        let (fs, name, value) = (Arc::clone(&self.fs), name.to_vec(), value.to_vec());
        let requester = requester::Requester::of(request);
        let changeable = self.check_changeable(ino);
        self.answer(Operation::SetXattr, reply, async move {
            changeable?;
            fs.setxattr(convert::ino(ino), &name, &value, flags, |gid| requester.is_in_group(gid)).await
        });
    }

    pub(crate) fn remove_xattr(&self, ino: INodeNo, name: &[u8], reply: ReplyEmpty) {
        let (fs, name) = (Arc::clone(&self.fs), name.to_vec());
        let changeable = self.check_changeable(ino);
        self.answer(Operation::RemoveXattr, reply, async move {
            changeable?;
            fs.removexattr(convert::ino(ino), &name).await
        });
    }
}

/// Replies with a value, or with ERANGE if it is longer than `size` bytes. With size 0 the program asks only for the
/// length of the value.
fn reply_with_value(
    value: Result<impl AsRef<[u8]>, Error>,
    size: u32,
    mut request: InProgress,
    reply: ReplyXattr,
) {
    match value {
        Err(error) => {
            reply.error(request.refuse(&error));
        }
        Ok(value) => match value.as_ref() {
            value if size == 0 => reply.size(value.len() as u32),
            value if value.len() > size as usize => reply.error(request.refuse_with(Errno::ERANGE)),
            value => reply.data(value),
        },
    }
}
