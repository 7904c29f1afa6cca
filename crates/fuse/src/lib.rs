//! The file system in the kernel's words: FUSE requests to calls of [`vfs::Filesystem`], and back.
//!
//! Owns mounting and unmounting, the FUSE session and its threads, the shape of requests and replies, the
//! kernel's caches (what it may keep, and telling it what to drop).
//!
//! Refuses: to decide anything about files. Permissions are the kernel's to check (`default_permissions`),
//! everything else is `vfs`'s. No type of the transport (`fuser`) leaves this crate.
//!
//! Invariants: every request is answered exactly once; a request that need not wait is answered on the thread
//! that read it, any other on the runtime, so a slow store never keeps a reader thread; the kernel is told to
//! drop something only from a thread that serves no request (it may wait for one).

mod adapter;
mod connection;
mod convert;
mod invalidation;
mod mount_point;
mod mount_table;
mod operations;
mod remount;
mod reply;
mod requester;
mod requests;
mod session;
mod shared_mount;
mod signals;

pub use mount_point::{MountPointError, check as check_mount_point, is_dead};
pub use mount_table::{FILE_SYSTEM_TYPE, Mounted, mounted_at, mounts};
pub use operations::{Operation, RequestCounts};
pub use remount::{Change, RemountError, remount};
pub use session::{Locks, MountError, MountOptions, Session, UnmountError, detach, mount, unmount};
