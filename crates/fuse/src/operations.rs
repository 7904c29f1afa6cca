//! The operations of the kernel's requests, and counts of the requests by operation.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! operations {
    ($($(#[$doc:meta])* $operation:ident = $name:literal,)*) => {
        /// The kinds of requests that are counted separately.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Operation {
            $($(#[$doc])* $operation,)*
        }

        impl Operation {
            /// All operations.
            pub const ALL: &'static [Self] = &[$(Self::$operation,)*];

            /// Returns the kernel's name of the operation: its opcode in `linux/fuse.h` without `FUSE_`.
            /// [`Self::Other`] has a name of Tenon's own.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$operation => $name,)*
                }
            }
        }
    };
}

operations! {
    /// Look up a name in a directory.
    Lookup = "LOOKUP",
    /// Drop references to an inode. A batch counts once for each of its inodes.
    Forget = "FORGET",
    /// Read attributes.
    GetAttr = "GETATTR",
    /// Change attributes.
    SetAttr = "SETATTR",
    /// Read a symbolic link.
    ReadLink = "READLINK",
    /// Make a symbolic link.
    Symlink = "SYMLINK",
    /// Make a file or a special file without opening it.
    MkNod = "MKNOD",
    /// Make a directory.
    MkDir = "MKDIR",
    /// Remove a name of a file.
    Unlink = "UNLINK",
    /// Remove a directory.
    RmDir = "RMDIR",
    /// Rename or move an entry.
    Rename = "RENAME",
    /// Make a hard link.
    Link = "LINK",
    /// Make and open a file.
    Create = "CREATE",
    /// Open a file.
    Open = "OPEN",
    /// Read bytes.
    Read = "READ",
    /// Write bytes.
    Write = "WRITE",
    /// A descriptor is closed.
    Flush = "FLUSH",
    /// The last descriptor of an open file is closed.
    Release = "RELEASE",
    /// Make a file's bytes durable.
    Fsync = "FSYNC",
    /// Open a directory.
    OpenDir = "OPENDIR",
    /// List names.
    ReadDir = "READDIR",
    /// List names with attributes.
    ReadDirPlus = "READDIRPLUS",
    /// Close a directory.
    ReleaseDir = "RELEASEDIR",
    /// Make a directory's names durable.
    FsyncDir = "FSYNCDIR",
    /// Describe the file system.
    StatFs = "STATFS",
    /// Read an extended attribute.
    GetXattr = "GETXATTR",
    /// List extended attributes.
    ListXattr = "LISTXATTR",
    /// Set an extended attribute.
    SetXattr = "SETXATTR",
    /// Remove an extended attribute.
    RemoveXattr = "REMOVEXATTR",
    /// Allocate, punch or zero a range of a file.
    Fallocate = "FALLOCATE",
    /// Find data or a hole.
    Lseek = "LSEEK",
    /// Copy a range of one file to another.
    CopyFileRange = "COPY_FILE_RANGE",
    /// Ask for a conflicting lock.
    GetLk = "GETLK",
    /// Take a lock without waiting, or release it.
    SetLk = "SETLK",
    /// Take a lock, waiting until it is free.
    SetLkW = "SETLKW",
    /// A request that is not supported, or a request to take or release a lock that is refused at once.
    Other = "OTHER",
}

/// Counters, one for each [`Operation`].
#[derive(Debug)]
pub struct RequestCounts([AtomicU64; Operation::ALL.len()]);

impl Default for RequestCounts {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl RequestCounts {
    pub(crate) fn count(&self, operation: Operation) {
        self.0[operation as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of requests of this operation so far.
    pub fn of(&self, operation: Operation) -> u64 {
        self.0[operation as usize].load(Ordering::Relaxed)
    }

    /// Returns the name and the number of requests of every operation that was requested at least once.
    pub fn seen(&self) -> Vec<(&'static str, u64)> {
        let all = Operation::ALL.iter().map(|&operation| (operation.name(), self.of(operation)));
        all.filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_has_its_counter() {
        let counts = RequestCounts::default();
        for (index, &operation) in Operation::ALL.iter().enumerate() {
            assert_eq!(operation as usize, index);
        }
        counts.count(Operation::Write);
        counts.count(Operation::Other);
        counts.count(Operation::Other);
        assert_eq!(counts.seen(), [("WRITE", 1), ("OTHER", 2)]);
    }
}
