//! The system calls on files that are traced, by number.

/// The group under which reports count a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Family {
    Read,
    Write,
    /// `fsync`, `fdatasync`, `sync_file_range`, `syncfs`.
    Flush,
    /// Open, close, stat, make, link, rename, remove, list, allocate, truncate, attributes.
    Names,
    /// A request of an io_uring.
    Ring,
}

impl Family {
    pub(crate) const ALL: [Family; 5] =
        [Family::Read, Family::Write, Family::Flush, Family::Names, Family::Ring];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Family::Read => "read",
            Family::Write => "write",
            Family::Flush => "flush",
            Family::Names => "names",
            Family::Ring => "ring",
        }
    }
}

/// A traced system call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Syscall {
    pub(crate) number: i64,
    pub(crate) family: Family,
    /// Whether the first argument is the descriptor of an open file. Otherwise it is a path, or the directory that a path is relative to.
    pub(crate) takes_descriptor: bool,
}

const fn call(number: i64, family: Family, takes_descriptor: bool) -> Syscall {
    Syscall { number, family, takes_descriptor }
}

/// System calls of every architecture.
const GENERIC: &[Syscall] = &[
    call(libc::SYS_read, Family::Read, true),
    call(libc::SYS_readv, Family::Read, true),
    call(libc::SYS_pread64, Family::Read, true),
    call(libc::SYS_preadv, Family::Read, true),
    call(libc::SYS_preadv2, Family::Read, true),
    call(libc::SYS_write, Family::Write, true),
    call(libc::SYS_writev, Family::Write, true),
    call(libc::SYS_pwrite64, Family::Write, true),
    call(libc::SYS_pwritev, Family::Write, true),
    call(libc::SYS_pwritev2, Family::Write, true),
    call(libc::SYS_fsync, Family::Flush, true),
    call(libc::SYS_fdatasync, Family::Flush, true),
    call(libc::SYS_sync_file_range, Family::Flush, true),
    call(libc::SYS_syncfs, Family::Flush, true),
    call(libc::SYS_openat, Family::Names, false),
    call(libc::SYS_openat2, Family::Names, false),
    call(libc::SYS_close, Family::Names, true),
    call(libc::SYS_fstat, Family::Names, true),
    call(libc::SYS_newfstatat, Family::Names, false),
    call(libc::SYS_statx, Family::Names, false),
    call(libc::SYS_faccessat, Family::Names, false),
    call(libc::SYS_faccessat2, Family::Names, false),
    call(libc::SYS_getdents64, Family::Names, true),
    call(libc::SYS_mkdirat, Family::Names, false),
    call(libc::SYS_unlinkat, Family::Names, false),
    call(libc::SYS_renameat2, Family::Names, false),
    call(libc::SYS_renameat, Family::Names, false),
    call(libc::SYS_linkat, Family::Names, false),
    call(libc::SYS_fallocate, Family::Names, true),
    call(libc::SYS_ftruncate, Family::Names, true),
    call(libc::SYS_utimensat, Family::Names, false),
    call(libc::SYS_getxattr, Family::Names, false),
    call(libc::SYS_lgetxattr, Family::Names, false),
    call(libc::SYS_fgetxattr, Family::Names, true),
    call(libc::SYS_setxattr, Family::Names, false),
    call(libc::SYS_lsetxattr, Family::Names, false),
    call(libc::SYS_fsetxattr, Family::Names, true),
    call(libc::SYS_listxattr, Family::Names, false),
    call(libc::SYS_llistxattr, Family::Names, false),
    call(libc::SYS_flistxattr, Family::Names, true),
    call(libc::SYS_io_uring_enter, Family::Ring, true),
];

/// Legacy system calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const LEGACY: &[Syscall] = &[
    call(libc::SYS_open, Family::Names, false),
    call(libc::SYS_stat, Family::Names, false),
    call(libc::SYS_lstat, Family::Names, false),
    call(libc::SYS_access, Family::Names, false),
    call(libc::SYS_mkdir, Family::Names, false),
    call(libc::SYS_unlink, Family::Names, false),
    call(libc::SYS_rmdir, Family::Names, false),
    call(libc::SYS_rename, Family::Names, false),
];

#[cfg(not(target_arch = "x86_64"))]
const LEGACY: &[Syscall] = &[];

/// Returns every traced system call.
pub(crate) fn all() -> impl Iterator<Item = &'static Syscall> {
    GENERIC.iter().chain(LEGACY)
}

/// Returns the system call with this number, if it is traced.
pub(crate) fn by_number(number: u16) -> Option<&'static Syscall> {
    all().find(|call| call.number == i64::from(number))
}

/// Returns whether the system call returns a new file descriptor.
pub(crate) fn is_open(number: u16) -> bool {
    let opening = [libc::SYS_openat, libc::SYS_openat2];
    #[cfg(target_arch = "x86_64")]
    let opening = [opening[0], opening[1], libc::SYS_open];
    opening.contains(&i64::from(number))
}

/// Returns whether the system call closes its descriptor.
pub(crate) fn is_close(number: u16) -> bool {
    i64::from(number) == libc::SYS_close
}

/// Returns the kernel event filter that accepts only these system calls.
pub(crate) fn filter() -> String {
    all().map(|call| format!("id == {}", call.number)).collect::<Vec<_>>().join(" || ")
}
