//! Messages of requests that observe a process while it works: traces of operations, and the activity of a mount. Fields are added,
//! never changed.

use super::profile_row::ProfileRow;
use super::protocol::Status;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The operations to trace. An operation must fulfil all conditions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct TraceFilter {
    /// Names of operations; empty means all but FORGET.
    #[serde(default)]
    pub(crate) operations: Vec<String>,
    /// Path from the volume's root of a file or directory, or a pattern for paths or names.
    #[serde(default)]
    pub(crate) path: Option<String>,
    /// Id of the process whose operations are reported; none means all processes.
    #[serde(default)]
    pub(crate) pid: Option<u32>,
    /// Minimum time from request to reply, in microseconds.
    #[serde(default)]
    pub(crate) slower_than_us: u64,
    /// Whether to report requests to the store that belong to no operation in progress.
    #[serde(default)]
    pub(crate) background: bool,
}

/// Operations and requests since the last message.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct TraceBatch {
    /// Operations that were answered, in the order of the replies.
    pub(crate) operations: Vec<TracedCall>,
    /// Requests to the store that belong to no operation in progress.
    pub(crate) background: Vec<TracedRequest>,
    /// Events that were dropped, because the client reads more slowly than they arise.
    pub(crate) lost: u64,
}

/// An operation that was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TracedCall {
    /// Number of the operation. Operations that arrive later have larger numbers.
    pub(crate) id: u64,
    /// Time of arrival since the beginning of the trace, in microseconds.
    pub(crate) at_us: u64,
    /// Time until the reply, in microseconds.
    pub(crate) took_us: u64,
    /// Kind of the operation.
    pub(crate) operation: Cow<'static, str>,
    /// Path from the volume's root, lossy where it is not text; empty for the root; `#` and a number for an inode without a name.
    pub(crate) path: String,
    /// Path that a rename or link makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<String>,
    /// Offset in the file or directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) offset: Option<u64>,
    /// Length of the range, or the new length of the file, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
    /// The process that made the operation.
    pub(crate) process: TracedProcess,
    /// Name of the error; none for success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Cow<'static, str>>,
    /// Requests to the store that were made for the operation and ended before its reply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) requests: Vec<TracedRequest>,
}

/// The process that made an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TracedProcess {
    /// Process id; 0 for the kernel, and for processes of other PID namespaces.
    pub(crate) pid: u32,
    /// Thread id.
    pub(crate) thread: u32,
    /// Name of the program.
    pub(crate) program: String,
}

/// A request to the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TracedRequest {
    /// Number of the operation that caused the request; 0 for none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) operation: u64,
    /// Time since the beginning of the trace, in microseconds.
    pub(crate) at_us: u64,
    /// Time until the head of the response, in microseconds.
    pub(crate) took_us: u64,
    /// Kind of the request.
    pub(crate) kind: Cow<'static, str>,
    /// Key of the object, or prefix of a listing, escaped where it is not text.
    pub(crate) key: String,
    /// Length of the body that was sent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) sent_bytes: u64,
    /// Outcome of the request, as in metrics.
    pub(crate) outcome: Cow<'static, str>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Activity of a process in an interval.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Activity {
    /// Length of the interval in milliseconds.
    pub(crate) interval_ms: u64,
    /// Status at the end of the interval.
    pub(crate) status: Box<Status>,
    /// All metrics at the end of the interval.
    pub(crate) samples: BTreeMap<String, f64>,
    /// Operations by process in the interval, the longest total time first.
    pub(crate) processes: Vec<ProfileRow>,
    /// The files with the most bytes read and written, then of the others those with the most operations.
    pub(crate) files: Vec<FileActivity>,
}

/// Activity of a file or directory in an interval.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct FileActivity {
    /// Path from the volume's root, as in [`TracedCall`].
    pub(crate) path: String,
    /// Number of operations.
    pub(crate) count: u64,
    /// Sum of their times in microseconds.
    pub(crate) total_us: u64,
    /// Bytes that were read.
    pub(crate) read_bytes: u64,
    /// Bytes that were written.
    pub(crate) written_bytes: u64,
}
