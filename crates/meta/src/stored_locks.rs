//! Locks of files that all sessions of a shared engine see: what an engine stores of them. `vfs` knows their meaning.

use crate::record::Seqno;

/// A session as an owner of locks. Once its lease has expired, the session gets a new epoch, and its locks of earlier epochs are void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Locker {
    /// The number of the session.
    pub session: i64,
    /// The number of leases that the session has lost, plus 1.
    pub epoch: i64,
}

/// The locks of a file, as an engine stores them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredLocks {
    /// The encoded locks; `None` if there are none.
    pub held: Option<Vec<u8>>,
    /// The sessions whose locks are valid.
    pub lockers: Vec<Locker>,
    /// The newest commit.
    pub head: Seqno,
}

/// A replacement of a file's locks.
#[derive(Debug, Clone, Copy)]
pub struct LockChange<'l> {
    /// The number of the inode.
    pub ino: u64,
    /// The encoded locks that the caller has seen. The replacement fails if there are other ones.
    pub seen: Option<&'l [u8]>,
    /// The encoded locks to store; `None` if there are no more.
    pub new: Option<&'l [u8]>,
    /// Whether other sessions are notified, because some wait for a lock of this file.
    pub wakes: bool,
}
