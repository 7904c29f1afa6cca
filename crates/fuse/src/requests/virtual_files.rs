//! Requests about the files that the mount shows beside those of the volume ([`crate::virtual_files`]).

use crate::convert;
use crate::operations::Operation;
use crate::reply::GENERATION;
use crate::request_handler::RequestHandler;
use crate::virtual_files::{READ_ONLY, VirtualTree, is_dot, is_virtual};
use fuser::{FileHandle, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use std::sync::Arc;
use std::time::Duration;
use vfs::{Error, Ino};

impl RequestHandler {
    /// Returns the virtual files if an inode or a handle is theirs.
    pub(crate) fn virtual_at(&self, number: u64) -> Option<Arc<VirtualTree>> {
        if is_virtual(number) { self.virtual_files.clone() } else { None }
    }

    /// Returns the virtual files if a name is theirs: `.tenon` in the root, or any name in one of their directories.
    pub(crate) fn virtual_name(&self, parent: INodeNo, name: &[u8]) -> Option<Arc<VirtualTree>> {
        let is_top = parent.0 == Ino::ROOT.0 && name == vfs::RESERVED.as_bytes();
        if is_top || is_virtual(parent.0) { self.virtual_files.clone() } else { None }
    }

    /// Fails for an inode of virtual files, which is about to be changed.
    pub(crate) fn check_changeable(&self, ino: INodeNo) -> Result<(), Error> {
        if self.virtual_at(ino.0).is_some() { Err(READ_ONLY) } else { Ok(()) }
    }

    /// Fails for a name of virtual files that is about to be created or removed.
    pub(crate) fn check_name_changeable(&self, parent: INodeNo, name: &[u8]) -> Result<(), Error> {
        if self.virtual_name(parent, name).is_some() { Err(READ_ONLY) } else { Ok(()) }
    }

    /// Lists a directory of virtual files.
    pub(crate) fn list_virtual(
        &self,
        tree: &VirtualTree,
        handle: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectory,
    ) {
        let mut request = self.start(Operation::ReadDir);
        match tree.list(handle.0, cookie, false) {
            Ok(entries) => {
                for entry in entries {
                    let (ino, kind) = (INodeNo(entry.attr.ino.0), convert::kind(entry.attr.kind));
                    if reply.add(ino, entry.cookie, kind, &entry.name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => {
                reply.error(request.refuse(&error));
            }
        }
    }

    /// Like [`RequestHandler::list_virtual`], with attributes. The references of entries that do not fit are dropped again.
    pub(crate) fn list_virtual_with_attributes(
        &self,
        tree: &VirtualTree,
        handle: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut request = self.start(Operation::ReadDirPlus);
        let entries = match tree.list(handle.0, cookie, true) {
            Ok(entries) => entries,
            Err(error) => return reply.error(request.refuse(&error)),
        };
        let mut is_full = false;
        for entry in entries {
            let (ino, shown) = (entry.attr.ino, convert::attr(&entry.attr));
            let no_time = Duration::ZERO;
            is_full =
                is_full || reply.add(INodeNo(ino.0), entry.cookie, &entry.name, &no_time, &shown, GENERATION);
            if is_full && !is_dot(&entry.name) {
                tree.forget(ino, 1);
            }
        }
        reply.ok();
    }
}
