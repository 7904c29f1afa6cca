//! Sends results as replies: success has a form of its own for each kind of reply, failure is the same for all.

use crate::convert;
use crate::traced_operation::ReplySummary;
use bytes::Bytes;
use fuser::{
    Errno, FileHandle, FopenFlags, Generation, ReplyAttr, ReplyCreate, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyLseek, ReplyOpen, ReplyWrite,
};
use std::time::Duration;
use vfs::{Attr, Error};

/// The generation of every inode. A constant suffices, because inode numbers are never used again.
pub(crate) const GENERATION: Generation = Generation(0);

/// A reply that carries a `T`.
pub(crate) trait Answer<T>: Send + 'static {
    /// Sends the result to the kernel.
    fn answer(self, result: Result<T, Error>);

    /// Returns what the reply contains, for traces.
    fn summarize(_: &T) -> ReplySummary {
        ReplySummary::default()
    }
}

/// Attributes and the time for which the kernel may cache them.
pub(crate) struct AttrWithTtl {
    pub(crate) attr: Attr,
    pub(crate) ttl: Duration,
}

/// A handle of an open file or directory, and what the kernel may do with it.
pub(crate) struct OpenFile {
    pub(crate) handle: FileHandle,
    pub(crate) flags: FopenFlags,
}

/// Logs an error, because the program sees only its errno, and returns the errno.
pub(crate) fn log_errno(error: &Error) -> Errno {
    let errno = error.errno();
    let is_serious = matches!(errno, libc::EIO | libc::ESTALE | libc::ENOSPC | libc::EACCES);
    if is_serious && !matches!(error, Error::StaleEntry(_)) {
        tracing::warn!(errno, "{error}");
    } else {
        tracing::trace!(errno, "{error}");
    }
    convert::errno(error)
}

impl Answer<()> for ReplyEmpty {
    fn answer(self, result: Result<(), Error>) {
        match result {
            Ok(()) => self.ok(),
            Err(error) => self.error(log_errno(&error)),
        }
    }
}

impl Answer<AttrWithTtl> for ReplyEntry {
    fn answer(self, result: Result<AttrWithTtl, Error>) {
        match result {
            Ok(found) => self.entry(&found.ttl, &convert::attr(&found.attr), GENERATION),
            Err(error) => self.error(log_errno(&error)),
        }
    }

    fn summarize(found: &AttrWithTtl) -> ReplySummary {
        ReplySummary { ino: found.attr.ino.0, bytes: 0 }
    }
}

impl Answer<AttrWithTtl> for ReplyAttr {
    fn answer(self, result: Result<AttrWithTtl, Error>) {
        match result {
            Ok(found) => self.attr(&found.ttl, &convert::attr(&found.attr)),
            Err(error) => self.error(log_errno(&error)),
        }
    }
}

impl Answer<Bytes> for ReplyData {
    fn answer(self, result: Result<Bytes, Error>) {
        match result {
            Ok(bytes) => self.data(&bytes),
            Err(error) => self.error(log_errno(&error)),
        }
    }

    fn summarize(bytes: &Bytes) -> ReplySummary {
        ReplySummary { ino: 0, bytes: bytes.len() as u64 }
    }
}

impl Answer<u64> for ReplyLseek {
    fn answer(self, result: Result<u64, Error>) {
        // A file has at most 2^63 - 1 bytes, so the cast is exact.
        match result {
            Ok(offset) => self.offset(offset as i64),
            Err(error) => self.error(log_errno(&error)),
        }
    }
}

impl Answer<u32> for ReplyWrite {
    fn answer(self, result: Result<u32, Error>) {
        match result {
            Ok(written) => self.written(written),
            Err(error) => self.error(log_errno(&error)),
        }
    }

    fn summarize(written: &u32) -> ReplySummary {
        ReplySummary { ino: 0, bytes: u64::from(*written) }
    }
}

impl Answer<OpenFile> for ReplyOpen {
    fn answer(self, result: Result<OpenFile, Error>) {
        match result {
            Ok(file) => self.opened(file.handle, file.flags),
            Err(error) => self.error(log_errno(&error)),
        }
    }
}

impl Answer<(AttrWithTtl, OpenFile)> for ReplyCreate {
    fn answer(self, result: Result<(AttrWithTtl, OpenFile), Error>) {
        match result {
            Ok((made, file)) => {
                self.created(&made.ttl, &convert::attr(&made.attr), GENERATION, file.handle, file.flags);
            }
            Err(error) => self.error(log_errno(&error)),
        }
    }

    fn summarize((made, _): &(AttrWithTtl, OpenFile)) -> ReplySummary {
        ReplySummary { ino: made.attr.ino.0, bytes: 0 }
    }
}
