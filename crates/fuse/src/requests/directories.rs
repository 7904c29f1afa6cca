//! Requests for open directories and their entries.

use crate::convert;
use crate::operations::Operation;
use crate::reply::{GENERATION, OpenFile};
use crate::request_handler::RequestHandler;
use fuser::{FileHandle, FopenFlags, INodeNo, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyOpen};
use futures_util::future::join_all;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;
use vfs::{Attr, DirectoryEntry, Error, Filesystem, Handle, Ino, ListingCache};

/// Entries without attributes requested from `vfs` at a time. A glibc buffer of 32 KiB holds about a thousand short
/// names.
const ENTRIES_PER_CALL: usize = 512;
/// Entries with attributes requested from `vfs` at a time. The same buffer holds about two hundred of them.
const ENTRIES_PER_CALL_WITH_ATTRIBUTES: usize = 128;

impl RequestHandler {
    pub(crate) fn open_directory(&self, ino: INodeNo, reply: ReplyOpen) {
        if let Some(tree) = self.virtual_at(ino.0) {
            let ino = convert::ino(ino);
            return self.answer(Operation::OpenDir, reply, async move { tree.open_directory(ino).await });
        }
        let (fs, shared) = (Arc::clone(&self.fs), self.shared.clone());
        self.answer(Operation::OpenDir, reply, async move {
            let handle = fs.opendir(convert::ino(ino)).await?;
            let flags = match &shared {
                Some(shared) => {
                    shared.add_directory(handle);
                    FopenFlags::empty()
                }
                None => flags(fs.views().listing_cache(handle)),
            };
            Ok(OpenFile { handle: FileHandle(handle.0), flags })
        });
    }

    pub(crate) fn release_directory(&self, handle: FileHandle, reply: ReplyEmpty) {
        let _request = self.start(Operation::ReleaseDir);
        if let Some(tree) = self.virtual_at(handle.0) {
            tree.close(handle.0);
            return reply.ok();
        }
        if let Some(shared) = &self.shared {
            shared.remove_directory(Handle(handle.0));
        }
        self.fs.releasedir(Handle(handle.0));
        reply.ok();
    }

    /// Makes all names durable: the directory does not matter.
    pub(crate) fn sync_directory(&self, reply: ReplyEmpty) {
        let fs = Arc::clone(&self.fs);
        self.answer(Operation::FsyncDir, reply, async move { fs.sync_names().await });
    }

    pub(crate) fn list_directory(&self, handle: FileHandle, cookie: u64, mut reply: ReplyDirectory) {
        if let Some(tree) = self.virtual_at(handle.0) {
            return self.list_virtual(&tree, handle, cookie, reply);
        }
        let mut request = self.start(Operation::ReadDir);
        let fs = Arc::clone(&self.fs);
        self.run(request.cause(), async move {
            match fill(&fs, Handle(handle.0), cookie, &mut reply).await {
                Ok(()) => reply.ok(),
                Err(error) => {
                    reply.error(request.refuse(&error));
                }
            }
        });
    }

    pub(crate) fn list_with_attributes(
        &self,
        ino: INodeNo,
        handle: FileHandle,
        cookie: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        if let Some(tree) = self.virtual_at(handle.0) {
            return self.list_virtual_with_attributes(&tree, handle, cookie, reply);
        }
        let mut request = self.start(Operation::ReadDirPlus);
        let fs = Arc::clone(&self.fs);
        self.run(request.cause(), async move {
            match fill_plus(&fs, convert::ino(ino), Handle(handle.0), cookie, &mut reply).await {
                Ok(()) => reply.ok(),
                Err(error) => {
                    reply.error(request.refuse(&error));
                }
            }
        });
    }
}

/// Returns what the kernel may do with its cache of an open directory.
fn flags(cache: ListingCache) -> FopenFlags {
    match cache {
        ListingCache::None => FopenFlags::empty(),
        ListingCache::Anew => FopenFlags::FOPEN_CACHE_DIR,
        ListingCache::Kept => FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE,
    }
}

/// Adds entries after the position `from` until the reply is full or the directory ends. An error after the first batch
/// is left to the next request, so that the entries read before it arrive.
async fn fill(fs: &Filesystem, handle: Handle, from: u64, reply: &mut ReplyDirectory) -> Result<(), Error> {
    let mut cookie = from;
    loop {
        let entries = match fs.readdir(handle, cookie, ENTRIES_PER_CALL, false).await {
            Err(error) if cookie == from => return Err(error),
            Err(_) => return Ok(()),
            Ok(entries) => entries,
        };
        let Some(end) = entries.last().map(|last| last.cookie) else { return Ok(()) };
        // `fuser` has no value for an unknown kind, and programs rely on the kind, so every kind is determined here.
        let entries = match fs.with_kinds(entries).await {
            Err(error) if cookie == from => return Err(error),
            Err(_) => return Ok(()),
            Ok(entries) => entries,
        };
        for entry in &entries {
            let Some(kind) = entry.kind.map(convert::kind) else { continue };
            if reply.add(INodeNo(entry.ino.0), entry.cookie, kind, OsStr::from_bytes(&entry.name)) {
                return Ok(());
            }
        }
        cookie = end;
    }
}

/// Like [`fill`], with attributes. The kernel gets a reference for every entry except `.` and `..`; the references of
/// entries that do not fit are dropped again.
async fn fill_plus(
    fs: &Filesystem,
    directory: Ino,
    handle: Handle,
    from: u64,
    reply: &mut ReplyDirectoryPlus,
) -> Result<(), Error> {
    let mut cookie = from;
    loop {
        let asked = fs.views().asked();
        let entries = match fs.readdir(handle, cookie, ENTRIES_PER_CALL_WITH_ATTRIBUTES, true).await {
            Err(error) if cookie == from => return Err(error),
            Err(_) => return Ok(()),
            Ok(entries) => entries,
        };
        let Some(last) = entries.last() else { return Ok(()) };
        cookie = last.cookie;
        let known = with_attributes(fs, directory, entries).await;
        let ttl = fs.views().lifetime_listed(directory, asked);
        let mut full = false;
        for (entry, attr) in known {
            let is_kept = !entry.is_awaited && !fs.kernel_caches().misleads_readers(&attr);
            let ttl = if is_kept { ttl } else { Duration::ZERO };
            let shown = convert::attr(&attr);
            full = full
                || reply.add(
                    INodeNo(attr.ino.0),
                    entry.cookie,
                    OsStr::from_bytes(&entry.name),
                    &ttl,
                    &shown,
                    GENERATION,
                );
            if full && !is_dot(&entry.name) {
                fs.forget(attr.ino, 1);
            }
        }
        if full {
            return Ok(());
        }
    }
}

/// Returns the entries with their attributes. Entries whose attributes cannot be read, mostly because they were removed
/// meanwhile, are left out.
///
/// An entry without attributes has node id 0, but `fuser` writes one number both as the node id and as the name's inode number, and C
/// libraries have taken a name with inode number 0 for a deleted one. Missing attributes are therefore looked up here, as the kernel would do.
async fn with_attributes(
    fs: &Filesystem,
    directory: Ino,
    entries: Vec<DirectoryEntry>,
) -> Vec<(DirectoryEntry, Attr)> {
    let looked_up = entries.into_iter().map(|mut entry| async move {
        let attr = match entry.attr.take() {
            Some(attr) => Some(attr),
            None if is_dot(&entry.name) => fs.getattr(entry.ino).await.ok(),
            None => fs.lookup(directory, &entry.name).await.ok(),
        };
        attr.map(|attr| (entry, attr))
    });
    join_all(looked_up).await.into_iter().flatten().collect()
}

/// Returns whether an entry of this name is `.` or `..`, for which the kernel gets no reference.
fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}
