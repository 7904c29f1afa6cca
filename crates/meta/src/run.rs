//! Sorted runs: many records that an engine takes in at once.
//!
//! A run is built outside of commits, by any number of threads, and no reader sees it. A commit then adds it to the tables, at a cost that
//! does not depend on the number of its records.

use crate::codec::append_to_log_page;
use crate::engine::Condition;
use crate::error::{CommitError, EngineError};
use crate::record::Seqno;
use crate::{Merge, OpRecord, schema};
use std::mem;

/// Maximum ops in a page of a run's log. A page is the unit in which consumers of the log read the ops of a run.
pub const LOG_PAGE_OPS: u32 = 256;

/// Length in bytes at which a page of a run's log ends even if it has fewer than [`LOG_PAGE_OPS`] ops, so that it can
/// be one record of an engine.
const LOG_PAGE_BYTES: usize = 1 << 20;

/// A run that is being built. It is removed when it is dropped before [`finish`](Self::finish).
pub trait RunBuilder<'e>: Send {
    /// Adds a record. Fails unless the key is greater than the keys of all records and removals added before.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError>;

    /// Adds the removal of a record. Removing a key that does not exist is no error. Fails unless the key is greater
    /// than all keys added before, as in [`put`](Self::put).
    fn delete(&mut self, key: &[u8]) -> Result<(), EngineError>;

    /// Adds an op that the run implements. The log gets the ops in the order in which they are added.
    fn log(&mut self, record: &OpRecord) -> Result<(), EngineError>;

    /// Makes the run durable, and returns it for [`Run::ingest`].
    fn finish(self: Box<Self>) -> Result<Box<dyn Run + 'e>, EngineError>;
}

/// A run that is durable and that no reader sees. It is removed when it is dropped before a commit has added it.
pub trait Run: Send {
    /// Adds the run to the tables in one commit and returns the commit's sequence number. After a conflict nothing has
    /// changed, and the run can be added under other conditions.
    ///
    /// # Panics
    /// Panics if the run has been added already.
    fn ingest(&mut self, record: &RunRecord) -> Result<Seqno, CommitError>;
}

/// The other parts of a commit that adds a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunRecord {
    /// Conditions, checked against the state before the commit. A range condition also counts the keys of the run.
    pub conditions: Vec<Condition>,
    /// Merges into records that the run neither puts nor deletes.
    pub merges: Vec<(Vec<u8>, Merge)>,
}

/// The description of a run in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedRun {
    /// The version of the run's records.
    pub version: Seqno,
    /// Number of pages, each of which has a sequence number of its own.
    pub pages: u32,
    /// Number of ops.
    pub ops: u64,
    /// Total size of the pages in bytes.
    pub bytes: u64,
}

impl LoggedRun {
    /// Returns the sequence number of the commit that adds the run after `head`: that of the last page.
    pub fn seqno_after(&self, head: Seqno) -> Seqno {
        Seqno(head.0 + u64::from(self.pages.max(1)))
    }

    /// Returns the sequence number of a page, counted from 0, in a commit with this number.
    pub fn seqno_of_page(&self, commit: Seqno, page: u32) -> Seqno {
        Seqno(commit.0 + 1 + u64::from(page) - u64::from(self.pages))
    }

    /// Returns the first page after a cursor, in a commit with this number. It is [`LoggedRun::pages`] or more if the
    /// cursor is not before the commit.
    pub fn first_page_after(&self, cursor: Seqno, commit: Seqno) -> u32 {
        let read = cursor.0.saturating_add(self.pages.into()).saturating_sub(commit.0);
        u32::try_from(read).unwrap_or(u32::MAX)
    }
}

/// Checks the keys of a run as they are added.
#[derive(Debug, Default)]
pub struct RunKeys {
    /// The key that was added last.
    last: Option<Vec<u8>>,
}

impl RunKeys {
    /// Adds a key. Fails unless it is greater than the previous one and not reserved for the engine.
    pub fn add(&mut self, key: &[u8]) -> Result<(), EngineError> {
        if self.last.as_deref().is_some_and(|last| last >= key) {
            return Err(EngineError::Unavailable("the keys of a run must ascend".into()));
        }
        schema::check_writable(key)?;
        key.clone_into(self.last.get_or_insert_default());
        Ok(())
    }
}

/// Divides the ops of a run into pages. Every engine divides them alike.
#[derive(Debug)]
pub struct LogPager {
    page: Vec<u8>,
    /// Number of ops in `page`.
    page_ops: u32,
    run: LoggedRun,
}

impl LogPager {
    /// Begins the first page of a run whose records have this version.
    pub fn new(version: Seqno) -> Self {
        Self { page: Vec::new(), page_ops: 0, run: LoggedRun { version, pages: 0, ops: 0, bytes: 0 } }
    }

    /// Adds an op. Returns the number and the encoded ops of the page that ends with this op; `None` if the page has
    /// room for more.
    pub fn add(&mut self, record: &OpRecord) -> Option<(u32, Vec<u8>)> {
        append_to_log_page(&mut self.page, record);
        self.page_ops += 1;
        self.run.ops += 1;
        let is_full = self.page_ops == LOG_PAGE_OPS || self.page.len() >= LOG_PAGE_BYTES;
        if is_full { self.end_page() } else { None }
    }

    /// Ends the current page and returns its number and encoded ops; `None` if it has no ops.
    pub fn end_page(&mut self) -> Option<(u32, Vec<u8>)> {
        if self.page_ops == 0 {
            return None;
        }
        let page = mem::take(&mut self.page);
        self.page_ops = 0;
        self.run.bytes += page.len() as u64;
        self.run.pages += 1;
        Some((self.run.pages - 1, page))
    }

    /// Returns the description of the pages that have ended.
    pub fn run(&self) -> LoggedRun {
        self.run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_has_a_sequence_number() {
        let run = LoggedRun { version: Seqno(3), pages: 3, ops: 700, bytes: 0 };
        let commit = run.seqno_after(Seqno(10));
        assert_eq!(commit, Seqno(13));
        assert_eq!([0, 1, 2].map(|page| run.seqno_of_page(commit, page).0), [11, 12, 13]);
        assert_eq!([9, 10, 11, 12, 13].map(|at| run.first_page_after(Seqno(at), commit)), [0, 0, 1, 2, 3]);
        assert_eq!(LoggedRun { pages: 0, ..run }.seqno_after(Seqno(10)), Seqno(11));
    }
}
