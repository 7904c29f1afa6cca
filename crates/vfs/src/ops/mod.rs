//! The operations of the file system, one family per file.

mod admin;
mod attributes;
mod batches;
mod change_entries;
pub(crate) mod create;
mod data;
pub(crate) mod directory;
pub(crate) mod entries;
mod exchange;
mod list;
mod locate;
mod locks;
mod lookup;
mod maintenance;
mod open;
mod packs;
mod quotas;
mod recover;
pub(crate) mod remove;
pub(crate) mod rename;
mod seek;
mod status;
mod sync;
mod warm;
mod xattrs;

pub use admin::Admin;
pub(crate) use attributes::without_set_id;
pub use batches::Batches;
pub use directory::DirectoryEntry;
pub use locate::FileLocation;
pub use locks::FileLocks;
pub use seek::Whence;
pub use status::{Statfs, Status};
pub use warm::Warmed;

#[cfg(test)]
mod tests {
    use crate::{Caller, Changes, Filesystem, Handle, Kind, Time};
    use meta::Ino;

    fn is_send(_: impl Send) {}

    /// Checks at compile time that a front end can run calls on any thread. A stream over a closure that borrows is the usual
    /// way to lose `Send`, and would otherwise fail only in the front end's crate.
    #[expect(dead_code, reason = "never called")]
    fn every_call_can_move_between_threads(fs: &Filesystem, caller: Caller, ino: Ino, handle: Handle) {
        is_send(fs.lookup(ino, b"a"));
        is_send(fs.getattr(ino));
        is_send(fs.setattr(caller, ino, Changes { mtime: Some(Time::Now), ..Changes::default() }, None));
        is_send(fs.readlink(ino));
        is_send(fs.create(caller, ino, b"a", 0, 0));
        is_send(fs.create_unnamed(caller, ino, 0, 0));
        is_send(fs.mknod(caller, ino, b"a", Kind::File, 0, 0));
        is_send(fs.mkdir(caller, ino, b"a", 0));
        is_send(fs.symlink(caller, ino, b"a", b"b"));
        is_send(fs.link(ino, ino, b"a"));
        is_send(fs.fallocate(handle, 0, 0, 1));
        is_send(fs.seek(handle, 0, super::Whence::Data));
        is_send(fs.copy_range((handle, 0), (handle, 9), 1));
        is_send(fs.unlink(ino, b"a"));
        is_send(fs.rmdir(ino, b"a"));
        is_send(fs.rename((ino, b"a"), (ino, b"b"), 0));
        is_send(fs.open(ino, 0));
        is_send(fs.read(handle, 0, 1));
        is_send(fs.write(handle, 0, b"a"));
        is_send(fs.admin().warm(ino));
        is_send(fs.flush(handle));
        is_send(fs.fsync(handle));
        is_send(fs.release(handle));
        is_send(fs.opendir(ino));
        is_send(fs.readdir(handle, 0, 1, true));
        is_send(fs.getxattr(ino, b"user.a"));
        is_send(fs.listxattr(ino));
        is_send(fs.setxattr(ino, b"user.a", b"b", 0, |_| true));
        is_send(fs.removexattr(ino, b"user.a"));
        is_send(fs.sync());
    }
}
