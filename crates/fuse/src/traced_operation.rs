//! Single requests of the kernel, for observers: what a request is about, who makes it, its result, and the store's requests that
//! were made for it.

use crate::operations::Operation;
use crate::processes::Process;
use fuser::INodeNo;
use metrics::{Observation, SwitchedOn};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use vfs::{Cause, StoreRequest};

/// A request that was answered.
#[derive(Debug, Clone)]
pub struct TracedOperation {
    /// Number of the request, also in its [`StoreRequest`]s. Requests that arrive later have larger numbers.
    pub id: u64,
    /// Operation.
    pub operation: Operation,
    /// The process that made the request.
    pub process: Process,
    /// The thread of the process; 0 for the kernel itself.
    pub thread: u32,
    /// Inode, name and range of the request.
    pub subject: Subject,
    /// Arrival of the request.
    pub began: Instant,
    /// Time from the arrival to the reply.
    pub took: Duration,
    /// The error of the reply; 0 for none.
    pub errno: i32,
    /// Contents of the reply.
    pub reply: ReplySummary,
    /// Requests to the store that ended before the reply.
    pub requests: Vec<StoreRequest>,
}

/// Contents of a reply, as far as traces show them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplySummary {
    /// The inode of an entry that was found or made; 0 for none.
    pub ino: u64,
    /// Bytes that were read, of a file or of a symbolic link, or written.
    pub bytes: u64,
}

/// Inode, name and range of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subject {
    /// The inode, or the directory of the name.
    pub ino: u64,
    /// The name; empty for none.
    pub name: Vec<u8>,
    /// Directory and name that a RENAME or LINK makes.
    pub target: Option<(u64, Vec<u8>)>,
    /// Offset in the file or directory.
    pub offset: Option<u64>,
    /// Length in bytes: of the range, or the new length of the file.
    pub bytes: Option<u64>,
}

/// The subject of a request that is being decoded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SubjectRef<'a> {
    ino: u64,
    name: &'a [u8],
    target: Option<(u64, &'a [u8])>,
    offset: Option<u64>,
    bytes: Option<u64>,
}

impl<'a> SubjectRef<'a> {
    /// Makes the subject of a request about an inode.
    pub(crate) fn inode(ino: INodeNo) -> Self {
        Self { ino: ino.0, ..Self::default() }
    }

    /// Makes the subject of a request about a name in a directory.
    pub(crate) fn name(directory: INodeNo, name: &'a [u8]) -> Self {
        Self { ino: directory.0, name, ..Self::default() }
    }

    /// Adds the name that a RENAME or LINK makes.
    pub(crate) fn to(self, directory: INodeNo, name: &'a [u8]) -> Self {
        Self { target: Some((directory.0, name)), ..self }
    }

    /// Adds the offset of the request.
    pub(crate) fn at(self, offset: u64) -> Self {
        Self { offset: Some(offset), ..self }
    }

    /// Adds the length of the range that the request is about.
    pub(crate) fn bytes(self, bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    /// Adds the length that the request gives a file, if it gives one.
    pub(crate) fn new_length(self, bytes: Option<u64>) -> Self {
        Self { bytes, ..self }
    }

    /// Returns an owned copy.
    pub(crate) fn to_subject(self) -> Subject {
        Subject {
            ino: self.ino,
            name: self.name.to_vec(),
            target: self.target.map(|(directory, name)| (directory, name.to_vec())),
            offset: self.offset,
            bytes: self.bytes,
        }
    }
}

/// A request in progress that is observed.
#[derive(Debug)]
pub(crate) struct ObservedRequest {
    /// The cause of the store's requests that are made for this request.
    pub(crate) cause: Arc<Cause>,
    pub(crate) process: Process,
    pub(crate) subject: Subject,
    pub(crate) reply: ReplySummary,
    /// Whether the sampler has chosen the request.
    pub(crate) is_sampled: bool,
}

/// The registration of an observer of requests. It ends when it is dropped.
#[derive(Debug)]
pub struct OperationObservation {
    pub(crate) _observation: Observation<TracedOperation>,
    pub(crate) _timing: SwitchedOn,
}
