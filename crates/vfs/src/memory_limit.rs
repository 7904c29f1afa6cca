//! The memory limit of a mount, and its shares for names, reads and writes.
//!
//! Other parts of the process, such as views, reserve memory of the limit. The shares are of the rest, and become smaller when the
//! other parts grow.
//!
//! Invariant: all shares and the reserved memory together are less than the limit, so that memory is left for sockets and code.

use std::sync::atomic::{AtomicU64, Ordering};

/// Memory limit of the process, and the part of it that other parts of the process hold.
#[derive(Debug)]
pub(crate) struct MemoryLimit {
    /// The limit.
    limit_bytes: u64,
    /// Bytes of the limit that other parts of the process hold.
    reserved_bytes: AtomicU64,
}

/// A use of memory, with its share of the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// Names and attributes, with the cache of the metadata engine.
    Names,
    /// Bytes being read.
    Reads,
    /// Bytes being written.
    Writes,
}

impl Share {
    /// Returns the share in percent. The 15 % that are left are slack for sockets and code.
    fn percent(self) -> u64 {
        match self {
            Self::Names => 40,
            Self::Reads => 22,
            Self::Writes => 23,
        }
    }
}

impl MemoryLimit {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self { limit_bytes, reserved_bytes: AtomicU64::new(0) }
    }

    /// Returns the limit, including what is reserved.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Sets how much of the limit other parts of the process hold. At least half of the limit stays for the shares.
    pub(crate) fn reserve(&self, bytes: u64) {
        self.reserved_bytes.store(bytes.min(self.limit_bytes / 2), Ordering::Release);
    }

    /// Returns the present size of a share in bytes.
    pub(crate) fn share_bytes(&self, share: Share) -> u64 {
        (self.limit_bytes - self.reserved_bytes.load(Ordering::Acquire)) / 100 * share.percent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_is_not_reserved() {
        let memory = MemoryLimit::new(1000);
        let shares = || [Share::Names, Share::Reads, Share::Writes].map(|share| memory.share_bytes(share));
        assert_eq!(shares(), [400, 220, 230]);
        memory.reserve(200);
        assert_eq!(shares(), [320, 176, 184]);
        memory.reserve(5000);
        assert_eq!(shares(), [200, 110, 115]);
        memory.reserve(0);
        assert_eq!(shares(), [400, 220, 230]);
    }
}
