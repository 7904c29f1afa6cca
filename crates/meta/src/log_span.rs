//! Which part of an op log is kept, and for whom: the rules of [`LogCap`] without the records themselves.
//!
//! Every engine keeps a span beside its log and drops the records up to [`LogSpan::cut`].
//!
//! Invariants: the log is complete after `cut`; `cut <= ` every cursor of a consumer that has not lagged.

use crate::engine::{LogCap, LogError, Seqno};
use std::collections::{BTreeMap, VecDeque};

/// The span of a log from [`cut`](Self::cut) on, and the consumers it is kept for.
#[derive(Debug, Clone)]
pub struct LogSpan {
    cap: LogCap,
    commits: VecDeque<Logged>,
    ops: usize,
    bytes: u64,
    cut: Seqno,
    cursors: BTreeMap<String, Seqno>,
}

/// What a commit has in the log.
#[derive(Debug, Clone, Copy)]
struct Logged {
    seqno: Seqno,
    ops: usize,
    bytes: u64,
}

impl LogSpan {
    /// An empty span that begins after `cut`.
    pub fn new(cap: LogCap, cut: Seqno) -> Self {
        Self { cap, commits: VecDeque::new(), ops: 0, bytes: 0, cut, cursors: BTreeMap::new() }
    }

    /// A commit has put so many ops into the log, which take so many bytes there.
    pub fn append(&mut self, seqno: Seqno, ops: usize, bytes: u64) {
        if ops == 0 {
            return;
        }
        self.commits.push_back(Logged { seqno, ops, bytes });
        self.ops += ops;
        self.bytes += bytes;
        self.trim();
    }

    /// The log is complete after this commit, and nothing before is kept.
    pub fn cut(&self) -> Seqno {
        self.cut
    }

    /// The bytes that the kept ops take, as [`append`](Self::append) was told.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the log reaches back to the cursor; `head` is what the one who lags is told.
    pub fn reaches(&self, cursor: Seqno, head: Seqno) -> Result<(), LogError> {
        if cursor < self.cut { Err(LogError::Lagged { head }) } else { Ok(()) }
    }

    /// Keeps the log from `at` on for a consumer; one of the same name starts anew. Gives the cursor.
    pub fn register(&mut self, consumer: &str, at: Seqno, head: Seqno) -> Result<Seqno, LogError> {
        self.reaches(at, head)?;
        let at = at.min(head);
        self.cursors.insert(consumer.to_owned(), at);
        self.trim();
        Ok(at)
    }

    /// How far a consumer is.
    pub fn cursor(&self, consumer: &str, head: Seqno) -> Result<Seqno, LogError> {
        let at = *self.cursors.get(consumer).ok_or_else(|| LogError::NoConsumer(consumer.to_owned()))?;
        self.reaches(at, head)?;
        Ok(at)
    }

    /// A consumer is done with the log up to `to`; going back is ignored. Gives the cursor.
    pub fn advance(&mut self, consumer: &str, to: Seqno, head: Seqno) -> Result<Seqno, LogError> {
        let cursor =
            self.cursors.get_mut(consumer).ok_or_else(|| LogError::NoConsumer(consumer.to_owned()))?;
        *cursor = (*cursor).max(to.min(head));
        let at = *cursor;
        self.trim();
        Ok(at)
    }

    /// Keeps nothing for a consumer any more.
    pub fn forget(&mut self, consumer: &str) {
        self.cursors.remove(consumer);
        self.trim();
    }

    /// A consumer that an engine finds in its tables when it is opened, wherever it is.
    pub fn restore(&mut self, consumer: &str, at: Seqno) {
        self.cursors.insert(consumer.to_owned(), at);
    }

    /// Drops whole commits that nobody needs, or that exceed the cap.
    fn trim(&mut self) {
        let needed_after = self.cursors.values().filter(|at| **at >= self.cut).min().copied();
        while let Some(first) = self.commits.front().copied() {
            let unneeded = needed_after.is_none_or(|at| first.seqno <= at) && self.ops > self.cap.tail_ops;
            if !unneeded && self.bytes <= self.cap.bytes_max {
                break;
            }
            self.commits.pop_front();
            self.ops -= first.ops;
            self.bytes -= first.bytes;
            self.cut = first.seqno;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(bytes_max: u64, tail_ops: usize) -> LogSpan {
        let mut span = LogSpan::new(LogCap { bytes_max, tail_ops }, Seqno(0));
        for seqno in 1..=5 {
            span.append(Seqno(seqno), 2, 10);
        }
        span
    }

    #[test]
    fn whole_commits_go_until_the_cap_is_kept() {
        assert_eq!(span(30, 0).cut(), Seqno(5), "nobody asked for more than no tail");
        assert_eq!(span(1000, 4).cut(), Seqno(3));
        assert_eq!(span(1000, 5).cut(), Seqno(3), "a commit is not cut in two");
        assert_eq!(span(20, 100).cut(), Seqno(3), "the cap counts more than the tail");
    }

    #[test]
    fn a_consumer_keeps_what_it_needs() {
        let mut span = LogSpan::new(LogCap { bytes_max: 1000, tail_ops: 0 }, Seqno(0));
        span.register("c", Seqno(0), Seqno(0)).unwrap();
        (1..=5).for_each(|seqno| span.append(Seqno(seqno), 1, 1));
        assert_eq!((span.cut(), span.bytes()), (Seqno(0), 5));
        assert_eq!(span.advance("c", Seqno(3), Seqno(5)), Ok(Seqno(3)));
        assert_eq!((span.cut(), span.bytes()), (Seqno(3), 2));
        span.forget("c");
        assert_eq!((span.cut(), span.bytes()), (Seqno(5), 0));
    }

    #[test]
    fn a_restored_consumer_may_have_lagged() {
        let mut span = LogSpan::new(LogCap::default(), Seqno(7));
        span.restore("c", Seqno(3));
        assert_eq!(span.cursor("c", Seqno(9)), Err(LogError::Lagged { head: Seqno(9) }));
    }
}
