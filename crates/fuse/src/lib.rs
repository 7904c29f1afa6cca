//! The FUSE front end: translates requests of the kernel into calls of [`vfs::Filesystem`], and results into replies.
//!
//! Owns mounting and unmounting, the FUSE session and its threads, the shape of requests and replies, and the kernel's caches:
//! what the kernel may keep, and when it is told to drop something; and the figures of requests ([`Meter`]).
//!
//! Refuses to make decisions about files. The kernel checks permissions (`default_permissions`); `vfs` decides
//! everything else. No type of `fuser`, the library that speaks the FUSE protocol, leaves this crate.
//!
//! Invariants: every request that has a reply is answered exactly once. A request that need not wait is answered on
//! the thread that read it, any other on the runtime, so that a slow store never blocks a reader thread.
//! Invalidations are sent only from a thread that serves no request, because the kernel may make the sender wait for
//! a request.

mod adapter;
mod connection;
mod convert;
mod errno_names;
mod invalidation;
mod locks;
mod meter;
mod mount_options;
mod mount_point;
mod mount_table;
mod operations;
mod processes;
mod profile;
mod remount;
mod reply;
mod request_handler;
mod requester;
mod requests;
mod session;
mod shared_mount;
mod signals;
mod stale_opens;
mod traced_operation;
mod virtual_files;

pub use errno_names::errno_name;
pub use locks::Locks;
pub use meter::{Meter, ProfileRun};
pub use mount_options::{MountError, MountOptions, UnmountError};
pub use mount_point::{MountPointError, check as check_mount_point, is_dead};
pub use mount_table::{FILE_SYSTEM_TYPE, Mounted, mounted_at, mounts};
pub use operations::{Operation, RequestCounts};
pub use processes::Process;
pub use profile::ProfileRow;
pub use remount::{Change, RemountError, remount};
pub use session::{Session, detach, mount, unmount};
pub use traced_operation::{OperationObservation, ReplySummary, Subject, TracedOperation};
pub use virtual_files::{VirtualEntry, VirtualFiles};
