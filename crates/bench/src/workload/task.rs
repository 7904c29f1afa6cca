//! The tasks of a job's threads.

use super::job::SyncPolicy;
use super::trace_order::ReplayThread;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Size of a block at a random offset, and of a page of content.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// A file of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFile {
    /// Number, from 0; the content is a function of it.
    pub number: usize,
    /// Path below the mount point, and key in the bucket: `job1/00007`.
    pub path: String,
    /// Size.
    pub size_bytes: u64,
    /// Pages that were written again, with other content.
    pub rewritten: Option<Arc<Rewritten>>,
}

/// Pages of a file that were written again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewritten {
    /// Numbers of the pages.
    pub pages: BTreeSet<u64>,
}

/// A task of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Task {
    /// Creates a file, writes it in order, and closes it.
    Write(JobFile),
    /// Reads a file in order and compares every byte.
    Read(JobFile),
    /// Reads blocks and compares every byte.
    ReadBlocks {
        /// File.
        file: JobFile,
        /// Offsets of the blocks, in order.
        offsets: Arc<Vec<u64>>,
    },
    /// Writes blocks.
    WriteBlocks {
        /// File, as it was before.
        file: JobFile,
        /// Offsets of the blocks, in order.
        offsets: Arc<Vec<u64>>,
        /// When to sync.
        sync: SyncPolicy,
    },
    /// Reads a block in the middle of a file.
    FirstByte(JobFile),
    /// Asks for a file's attributes, and compares the size.
    Stat(JobFile),
    /// Lists a directory with the attributes of each file.
    List {
        /// Directory.
        folder: String,
        /// Files that must be listed.
        files: Arc<Vec<JobFile>>,
    },
    /// Renames a file.
    Rename {
        /// File.
        from: JobFile,
        /// New path.
        to: String,
    },
    /// Removes a file.
    Unlink(JobFile),
    /// Replays the calls of one thread of a trace.
    Replay(ReplayThread),
}

impl JobFile {
    /// Returns the offset of the block in the middle.
    pub fn middle(&self) -> u64 {
        self.size_bytes / 2 / PAGE_BYTES * PAGE_BYTES
    }
}

impl Task {
    /// Returns the new file, if the task makes one.
    pub(super) fn into_written(self) -> Option<JobFile> {
        match self {
            Self::Write(file) => Some(file),
            _ => None,
        }
    }
}
