//! Requests for attributes of inodes and of the whole file system.

use crate::convert;
use crate::operations::Operation;
use crate::request_handler::RequestHandler;
use fuser::{FileHandle, INodeNo, ReplyAttr, ReplyData, ReplyStatfs, Request};
use std::sync::Arc;
use vfs::{Changes, Error, Handle, Ino};

impl RequestHandler {
    /// Replies with attributes. The kernel passes a handle when a read through it has reached the end of the file as
    /// the kernel knows it. If that is the end of another version of the object than the handle reads, the reply is
    /// ESTALE.
    pub(crate) fn get_attributes(&self, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        if let Some(tree) = self.virtual_at(ino.0) {
            let ino = convert::ino(ino);
            return self.answer(Operation::GetAttr, reply, async move { tree.attributes(ino).await });
        }
        let (fs, with_ttl) = (Arc::clone(&self.fs), self.with_ttl());
        self.answer(Operation::GetAttr, reply, async move {
            let attr = match handle {
                Some(handle) => fs.getattr_through(Handle(handle.0), convert::ino(ino)).await,
                None => fs.getattr(convert::ino(ino)).await,
            };
            match attr {
                // An S3 client removed or replaced the file after the lookup. ESTALE makes the kernel repeat the lookup within the same call.
                Err(error) if error.errno() == libc::ENOENT => {
                    Err(Error::StaleEntry("the file was removed after its name was looked up"))
                }
                attr => attr.map(with_ttl),
            }
        });
    }

    pub(crate) fn set_attributes(
        &self,
        request: &Request,
        ino: INodeNo,
        changes: Changes,
        handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let (fs, with_ttl, caller) = (Arc::clone(&self.fs), self.with_ttl(), convert::caller(request, 0));
        let handle = handle.map(|handle| Handle(handle.0));
        let changeable = self.check_changeable(ino);
        self.answer(Operation::SetAttr, reply, async move {
            changeable?;
            fs.setattr(caller, convert::ino(ino), changes, handle).await.map(with_ttl)
        });
    }

    pub(crate) fn read_link(&self, ino: INodeNo, reply: ReplyData) {
        let fs = Arc::clone(&self.fs);
        self.answer(Operation::ReadLink, reply, async move { fs.readlink(convert::ino(ino)).await });
    }

    pub(crate) fn describe_file_system(&self, ino: INodeNo, reply: ReplyStatfs) {
        let mut request = self.start(Operation::StatFs);
        // Virtual files are in the root.
        let ino = if self.virtual_at(ino.0).is_some() { Ino::ROOT } else { convert::ino(ino) };
        let s = match self.fs.statfs(ino) {
            Ok(s) => s,
            Err(error) => {
                return reply.error(request.refuse(&error));
            }
        };
        let fragment_bytes = s.block_size_bytes;
        reply.statfs(
            s.blocks,
            s.blocks_free,
            s.blocks_free,
            s.files,
            s.files_free,
            s.block_size_bytes,
            s.name_bytes_max,
            fragment_bytes,
        );
    }
}
