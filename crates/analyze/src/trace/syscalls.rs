//! The system calls that reach files, by their numbers.

/// What a call is for; the families of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Family {
    Read,
    Write,
    /// `fsync` and its like.
    Flush,
    /// Open, close, stat, rename, remove, list, attributes.
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

/// A call that is traced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) number: i64,
    pub(crate) family: Family,
    /// The first argument is an open file; else it is a path's directory, or a path.
    pub(crate) of_descriptor: bool,
}

const fn call(number: i64, family: Family, of_descriptor: bool) -> Call {
    Call { number, family, of_descriptor }
}

/// Those that every architecture has.
const EVERYWHERE: &[Call] = &[
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

/// The old ones that newer architectures were never given.
#[cfg(target_arch = "x86_64")]
const HERE: &[Call] = &[
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
const HERE: &[Call] = &[];

/// Every call that is traced.
pub(crate) fn all() -> impl Iterator<Item = &'static Call> {
    EVERYWHERE.iter().chain(HERE)
}

/// The call of this number, if it is traced.
pub(crate) fn of_number(number: u16) -> Option<&'static Call> {
    all().find(|call| call.number == i64::from(number))
}

/// Whether the call answers with the descriptor of a file.
pub(crate) fn opens(number: u16) -> bool {
    let opening = [libc::SYS_openat, libc::SYS_openat2];
    #[cfg(target_arch = "x86_64")]
    let opening = [opening[0], opening[1], libc::SYS_open];
    opening.contains(&i64::from(number))
}

/// Whether the call ends its descriptor.
pub(crate) fn closes(number: u16) -> bool {
    i64::from(number) == libc::SYS_close
}

/// The kernel's filter that passes these calls only.
pub(crate) fn filter() -> String {
    all().map(|call| format!("id == {}", call.number)).collect::<Vec<_>>().join(" || ")
}
