//! The retention of an op log: which commits are kept and for which consumers, by the rules of [`LogCap`].
//!
//! A span has no records. An engine keeps a span for its log, and removes the log's records up to [`LogSpan::cut`].
//!
//! Invariants: the log is complete after `cut`; `cut <= ` the cursor of every consumer that has not lagged.

use crate::engine::LogCap;
use crate::error::LogError;
use crate::record::Seqno;
use crate::run::LoggedRun;
use std::collections::{BTreeMap, VecDeque};

/// The span of a log after [`cut`](Self::cut), and the consumers for which it is kept.
#[derive(Debug, Clone)]
pub struct LogSpan {
    cap: LogCap,
    commits: VecDeque<Logged>,
    ops: u64,
    /// Encoded bytes of the ops, apart from those of runs.
    bytes: u64,
    run_bytes: u64,
    /// The newest commit that was cut off.
    cut: Seqno,
    /// The last commit that each consumer has processed.
    cursors: BTreeMap<String, Seqno>,
}

/// The size of a commit's log records.
#[derive(Debug, Clone, Copy)]
struct Logged {
    seqno: Seqno,
    ops: u64,
    bytes: u64,
    run_bytes: u64,
}

impl LogSpan {
    /// Creates an empty span that begins after `cut`.
    pub fn new(cap: LogCap, cut: Seqno) -> Self {
        Self { cap, commits: VecDeque::new(), ops: 0, bytes: 0, run_bytes: 0, cut, cursors: BTreeMap::new() }
    }

    /// Records that a commit has added `ops` ops, of `bytes` bytes in total, to the log.
    pub fn append(&mut self, seqno: Seqno, ops: usize, bytes: u64) {
        self.push(Logged { seqno, ops: ops as u64, bytes, run_bytes: 0 });
    }

    /// Records that a commit has added a run with its ops to the log.
    pub fn append_run(&mut self, seqno: Seqno, run: &LoggedRun) {
        self.push(Logged { seqno, ops: run.ops, bytes: 0, run_bytes: run.bytes });
    }

    /// Adds a commit to the span, unless it has no ops.
    fn push(&mut self, commit: Logged) {
        if commit.ops == 0 {
            return;
        }
        self.ops += commit.ops;
        self.bytes += commit.bytes;
        self.run_bytes += commit.run_bytes;
        self.commits.push_back(commit);
        self.trim();
    }

    /// Returns the commit after which the log is complete. Records up to and including this commit are not kept.
    pub fn cut(&self) -> Seqno {
        self.cut
    }

    /// Returns the size of the kept ops in bytes, including those of runs.
    pub fn bytes(&self) -> u64 {
        self.bytes + self.run_bytes
    }

    /// Checks that the log reaches back to the cursor. Fails with `Lagged`, which reports `head`.
    pub fn reaches(&self, cursor: Seqno, head: Seqno) -> Result<(), LogError> {
        if cursor < self.cut { Err(LogError::Lagged { head }) } else { Ok(()) }
    }

    /// Registers a consumer, for which the log after `at` is kept, and returns its cursor. Registering a name again resets its cursor.
    pub fn register(&mut self, consumer: &str, at: Seqno, head: Seqno) -> Result<Seqno, LogError> {
        self.reaches(at, head)?;
        let at = at.min(head);
        self.cursors.insert(consumer.to_owned(), at);
        self.trim();
        Ok(at)
    }

    /// Returns a consumer's cursor. Fails if the consumer is unknown, or if the log after its cursor has been cut off.
    pub fn cursor(&self, consumer: &str, head: Seqno) -> Result<Seqno, LogError> {
        let at = *self.cursors.get(consumer).ok_or_else(|| LogError::NoConsumer(consumer.to_owned()))?;
        self.reaches(at, head)?;
        Ok(at)
    }

    /// Moves a consumer's cursor forward to `to` and returns the cursor. A lower `to` is ignored.
    pub fn advance(&mut self, consumer: &str, to: Seqno, head: Seqno) -> Result<Seqno, LogError> {
        let cursor =
            self.cursors.get_mut(consumer).ok_or_else(|| LogError::NoConsumer(consumer.to_owned()))?;
        *cursor = (*cursor).max(to.min(head));
        let at = *cursor;
        self.trim();
        Ok(at)
    }

    /// Removes a consumer.
    pub fn forget(&mut self, consumer: &str) {
        self.cursors.remove(consumer);
        self.trim();
    }

    /// Adds a consumer that an engine finds in its tables when it is opened. Its cursor may be before the cut.
    pub fn restore(&mut self, consumer: &str, at: Seqno) {
        self.cursors.insert(consumer.to_owned(), at);
    }

    /// Drops whole commits from the front of the log: those that no consumer needs, and those that exceed the cap.
    fn trim(&mut self) {
        let needed_after = self.cursors.values().filter(|at| **at >= self.cut).min().copied();
        while let Some(first) = self.commits.front().copied() {
            let unneeded =
                needed_after.is_none_or(|at| first.seqno <= at) && self.ops > self.cap.tail_ops as u64;
            let is_within_cap = self.bytes <= self.cap.bytes_max && self.run_bytes <= self.cap.run_bytes_max;
            if !unneeded && is_within_cap {
                break;
            }
            self.commits.pop_front();
            self.ops -= first.ops;
            self.bytes -= first.bytes;
            self.run_bytes -= first.run_bytes;
            self.cut = first.seqno;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(bytes_max: u64, tail_ops: usize) -> LogSpan {
        let mut span = LogSpan::new(LogCap { bytes_max, tail_ops, run_bytes_max: 100 }, Seqno(0));
        for seqno in 1..=5 {
            span.append(Seqno(seqno), 2, 10);
        }
        span
    }

    #[test]
    fn whole_commits_are_dropped_until_the_log_fits_the_cap() {
        assert_eq!(span(30, 0).cut(), Seqno(5), "without consumers and tail nothing is kept");
        assert_eq!(span(1000, 4).cut(), Seqno(3));
        assert_eq!(span(1000, 5).cut(), Seqno(3), "a commit is dropped as a whole");
        assert_eq!(span(20, 100).cut(), Seqno(3), "the cap takes precedence over the tail");
    }

    #[test]
    fn the_log_after_a_cursor_is_kept() {
        let mut span = LogSpan::new(LogCap { bytes_max: 1000, tail_ops: 0, run_bytes_max: 0 }, Seqno(0));
        span.register("c", Seqno(0), Seqno(0)).unwrap();
        (1..=5).for_each(|seqno| span.append(Seqno(seqno), 1, 1));
        assert_eq!((span.cut(), span.bytes()), (Seqno(0), 5));
        assert_eq!(span.advance("c", Seqno(3), Seqno(5)), Ok(Seqno(3)));
        assert_eq!((span.cut(), span.bytes()), (Seqno(3), 2));
        span.forget("c");
        assert_eq!((span.cut(), span.bytes()), (Seqno(5), 0));
    }

    #[test]
    fn a_run_has_a_cap_of_its_own() {
        let mut span = span(1000, 10);
        span.register("c", Seqno(0), Seqno(5)).unwrap();
        let run = LoggedRun { version: Seqno(6), pages: 3906, ops: 1_000_000, bytes: 60 };
        span.append_run(Seqno(4000), &run);
        assert_eq!(span.cursor("c", Seqno(4000)), Ok(Seqno(0)));
        span.advance("c", Seqno(3999), Seqno(4000)).unwrap();
        assert_eq!((span.cut(), span.bytes()), (Seqno(5), 60), "the consumer needs the run's last page");
        span.append_run(Seqno(8000), &run);
        assert_eq!(span.cursor("c", Seqno(8000)), Err(LogError::Lagged { head: Seqno(8000) }));
        assert_eq!((span.cut(), span.bytes()), (Seqno(4000), 60));
        span.forget("c");
        assert_eq!(span.cut(), Seqno(8000), "a run is kept for consumers only");
    }

    #[test]
    fn a_restored_consumer_may_have_lagged() {
        let mut span = LogSpan::new(LogCap::default(), Seqno(7));
        span.restore("c", Seqno(3));
        assert_eq!(span.cursor("c", Seqno(9)), Err(LogError::Lagged { head: Seqno(9) }));
    }
}
