//! Attributes of inodes and of the whole file system.

use crate::adapter::Adapter;
use crate::convert;
use crate::operations::Operation;
use crate::reply::failed;
use fuser::{FileHandle, INodeNo, ReplyAttr, ReplyData, ReplyStatfs, Request};
use std::sync::Arc;
use vfs::{Changes, Error, Handle};

impl Adapter {
    /// The kernel names a handle where a read through it reaches the end of the file: the end of other bytes than it reads is not
    /// its end.
    pub(crate) fn attributes(&self, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let (fs, believed) = (Arc::clone(&self.fs), self.believed());
        self.answer(Operation::GetAttr, reply, async move {
            let attr = match handle {
                Some(handle) => fs.getattr_through(Handle(handle.0), convert::ino(ino)).await,
                None => fs.getattr(convert::ino(ino)).await,
            };
            match attr {
                // An S3 client replaced the file since its name was looked up: the kernel looks again within the same call.
                Err(error) if error.errno() == libc::ENOENT => {
                    Err(Error::LookAgain("the file was removed since its name was looked up"))
                }
                attr => attr.map(believed),
            }
        });
    }

    pub(crate) fn change_attributes(
        &self,
        request: &Request,
        ino: INodeNo,
        changes: Changes,
        handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let (fs, believed, caller) = (Arc::clone(&self.fs), self.believed(), convert::caller(request, 0));
        let handle = handle.map(|handle| Handle(handle.0));
        self.answer(Operation::SetAttr, reply, async move {
            fs.setattr(caller, convert::ino(ino), changes, handle).await.map(believed)
        });
    }

    pub(crate) fn link_target(&self, ino: INodeNo, reply: ReplyData) {
        let fs = Arc::clone(&self.fs);
        self.answer(Operation::ReadLink, reply, async move { fs.readlink(convert::ino(ino)).await });
    }

    pub(crate) fn describe(&self, ino: INodeNo, reply: ReplyStatfs) {
        self.count(Operation::StatFs);
        let s = match self.fs.statfs(convert::ino(ino)) {
            Ok(s) => s,
            Err(error) => return reply.error(failed(&error)),
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
