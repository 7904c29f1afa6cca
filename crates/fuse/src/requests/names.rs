//! Requests that look up, create, rename and remove names.

use crate::convert::{self, permissions};
use crate::operations::Operation;
use crate::request_handler::RequestHandler;
use bytes::Bytes;
use fuser::{Errno, INodeNo, RenameFlags, ReplyEmpty, ReplyEntry};
use std::sync::Arc;
use vfs::Caller;

impl RequestHandler {
    pub(crate) fn look_up(&self, parent: INodeNo, name: &[u8], reply: ReplyEntry) {
        if let Some(tree) = self.virtual_name(parent, name) {
            let (parent, name) = (convert::ino(parent), name.to_vec());
            return self.answer(Operation::Lookup, reply, async move { tree.look_up(parent, &name).await });
        }
        let (fs, name) = (Arc::clone(&self.fs), Bytes::copy_from_slice(name));
        let with_ttl = self.with_entry_ttl(parent, &name);
        self.answer(Operation::Lookup, reply, async move {
            fs.lookup(convert::ino(parent), &name).await.map(with_ttl)
        });
    }

    pub(crate) fn make_node(
        &self,
        caller: Caller,
        parent: INodeNo,
        name: &[u8],
        mode: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let changeable = self.check_name_changeable(parent, name);
        let Some(kind) = convert::kind_of_mode(mode) else {
            return reply.error(self.start(Operation::MkNod).refuse_with(Errno::EINVAL));
        };
        let (fs, name) = (Arc::clone(&self.fs), Bytes::copy_from_slice(name));
        let with_ttl = self.with_entry_ttl(parent, &name);
        self.answer(Operation::MkNod, reply, async move {
            changeable?;
            fs.mknod(caller, convert::ino(parent), &name, kind, permissions(mode), rdev).await.map(with_ttl)
        });
    }

    pub(crate) fn make_directory(
        &self,
        caller: Caller,
        parent: INodeNo,
        name: &[u8],
        mode: u32,
        reply: ReplyEntry,
    ) {
        let changeable = self.check_name_changeable(parent, name);
        let (fs, name) = (Arc::clone(&self.fs), Bytes::copy_from_slice(name));
        let with_ttl = self.with_entry_ttl(parent, &name);
        self.answer(Operation::MkDir, reply, async move {
            changeable?;
            fs.mkdir(caller, convert::ino(parent), &name, permissions(mode)).await.map(with_ttl)
        });
    }

    pub(crate) fn make_symlink(
        &self,
        caller: Caller,
        parent: INodeNo,
        name: &[u8],
        target: &[u8],
        reply: ReplyEntry,
    ) {
        let changeable = self.check_name_changeable(parent, name);
        let (fs, name) = (Arc::clone(&self.fs), Bytes::copy_from_slice(name));
        let with_ttl = self.with_entry_ttl(parent, &name);
        let target = Bytes::copy_from_slice(target);
        self.answer(Operation::Symlink, reply, async move {
            changeable?;
            fs.symlink(caller, convert::ino(parent), &name, &target).await.map(with_ttl)
        });
    }

    pub(crate) fn add_name(&self, ino: INodeNo, parent: INodeNo, name: &[u8], reply: ReplyEntry) {
        let changeable = self.check_changeable(ino).and(self.check_name_changeable(parent, name));
        let (fs, name) = (Arc::clone(&self.fs), Bytes::copy_from_slice(name));
        let with_ttl = self.with_entry_ttl(parent, &name);
        self.answer(Operation::Link, reply, async move {
            changeable?;
            fs.link(convert::ino(ino), convert::ino(parent), &name).await.map(with_ttl)
        });
    }

    pub(crate) fn remove_name(&self, parent: INodeNo, name: &[u8], reply: ReplyEmpty) {
        let changeable = self.check_name_changeable(parent, name);
        let (fs, name) = (Arc::clone(&self.fs), Bytes::copy_from_slice(name));
        self.answer(Operation::Unlink, reply, async move {
            changeable?;
            fs.unlink(convert::ino(parent), &name).await
        });
    }

    pub(crate) fn remove_directory(&self, parent: INodeNo, name: &[u8], reply: ReplyEmpty) {
        let changeable = self.check_name_changeable(parent, name);
        let (fs, name) = (Arc::clone(&self.fs), Bytes::copy_from_slice(name));
        self.answer(Operation::RmDir, reply, async move {
            changeable?;
            fs.rmdir(convert::ino(parent), &name).await
        });
    }

    pub(crate) fn move_name(
        &self,
        from: (INodeNo, &[u8]),
        to: (INodeNo, &[u8]),
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let changeable =
            self.check_name_changeable(from.0, from.1).and(self.check_name_changeable(to.0, to.1));
        let fs = Arc::clone(&self.fs);
        let (from_name, to_name) = (Bytes::copy_from_slice(from.1), Bytes::copy_from_slice(to.1));
        let (from, to) = (convert::ino(from.0), convert::ino(to.0));
        self.answer(Operation::Rename, reply, async move {
            changeable?;
            fs.rename((from, &from_name), (to, &to_name), flags.bits()).await
        });
    }
}
