//! A row of a profile, as the control socket sends it. Fields are added, never changed.

use serde::{Deserialize, Serialize};

/// Requests of one process for one operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProfileRow {
    /// Process id; 0 for the kernel, and for processes of other PID namespaces.
    pub(crate) pid: u32,
    /// Name of the program.
    pub(crate) program: String,
    /// Operation.
    pub(crate) operation: String,
    /// Number of requests.
    pub(crate) count: u64,
    /// Sum of their times in microseconds.
    pub(crate) total_us: u64,
    /// Longest time in microseconds.
    pub(crate) longest_us: u64,
}

impl From<fuse::ProfileRow> for ProfileRow {
    fn from(row: fuse::ProfileRow) -> Self {
        let us = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            pid: row.process,
            program: row.program,
            operation: row.operation.name().to_owned(),
            count: row.count,
            total_us: us(row.total),
            longest_us: us(row.longest),
        }
    }
}
