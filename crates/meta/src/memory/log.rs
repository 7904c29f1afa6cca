//! The op log in memory, kept for the slowest consumer up to a cap.

use crate::codec::{decode_log_record, encode_log_record};
use crate::engine::{EngineError, LogCap, LogError, LoggedOp, Seqno};
use crate::{Ctx, Op};
use std::collections::{BTreeMap, VecDeque};

/// What a record takes in the queue beside its bytes.
const RECORD_BYTES: u64 = 48;

#[derive(Debug, Clone)]
pub(super) struct Log {
    cap: LogCap,
    records: VecDeque<(Seqno, Box<[u8]>)>,
    bytes: u64,
    /// The log is complete after this commit.
    cut: Seqno,
    cursors: BTreeMap<String, Seqno>,
}

impl Log {
    pub(super) fn new(cap: LogCap) -> Self {
        Self { cap, records: VecDeque::new(), bytes: 0, cut: Seqno(0), cursors: BTreeMap::new() }
    }

    pub(super) fn append(&mut self, seqno: Seqno, ops: &[(Ctx, Op)]) {
        for (ctx, op) in ops {
            let record = encode_log_record(ctx, op);
            self.bytes += record.len() as u64 + RECORD_BYTES;
            self.records.push_back((seqno, record.into()));
        }
        self.trim();
    }

    pub(super) fn after(&self, cursor: Seqno, limit: usize, head: Seqno) -> Result<Vec<LoggedOp>, LogError> {
        if cursor < self.cut {
            return Err(LogError::Lagged { head });
        }
        let mut ops: Vec<LoggedOp> = Vec::new();
        let begin = self.records.partition_point(|(seqno, _)| *seqno <= cursor);
        for (seqno, record) in self.records.range(begin..) {
            if ops.len() >= limit && ops.last().is_some_and(|last| last.seqno != *seqno) {
                break;
            }
            let (ctx, op) = decode_log_record(record).map_err(EngineError::from)?;
            ops.push(LoggedOp { seqno: *seqno, ctx, op });
        }
        Ok(ops)
    }

    pub(super) fn register(&mut self, consumer: &str, at: Seqno, head: Seqno) -> Result<(), LogError> {
        if at < self.cut {
            return Err(LogError::Lagged { head });
        }
        self.cursors.insert(consumer.to_owned(), at.min(head));
        Ok(())
    }

    pub(super) fn cursor(&self, consumer: &str, head: Seqno) -> Result<Seqno, LogError> {
        match self.cursors.get(consumer) {
            None => Err(LogError::NoConsumer(consumer.to_owned())),
            Some(at) if *at < self.cut => Err(LogError::Lagged { head }),
            Some(at) => Ok(*at),
        }
    }

    pub(super) fn advance(&mut self, consumer: &str, to: Seqno, head: Seqno) -> Result<(), LogError> {
        let cursor =
            self.cursors.get_mut(consumer).ok_or_else(|| LogError::NoConsumer(consumer.to_owned()))?;
        *cursor = (*cursor).max(to.min(head));
        self.trim();
        Ok(())
    }

    pub(super) fn forget(&mut self, consumer: &str) {
        self.cursors.remove(consumer);
        self.trim();
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.bytes
    }

    /// Drops whole commits that nobody needs, or that exceed the cap.
    fn trim(&mut self) {
        let needed_after = self.cursors.values().filter(|at| **at >= self.cut).min().copied();
        while let Some((seqno, _)) = self.records.front() {
            let seqno = *seqno;
            let unneeded =
                needed_after.is_none_or(|at| seqno <= at) && self.records.len() > self.cap.tail_ops;
            if !unneeded && self.bytes <= self.cap.bytes_max {
                break;
            }
            self.drop_commit(seqno);
        }
    }

    fn drop_commit(&mut self, seqno: Seqno) {
        while let Some((_, record)) = self.records.pop_front_if(|(front, _)| *front == seqno) {
            self.bytes -= record.len() as u64 + RECORD_BYTES;
        }
        self.cut = seqno;
    }
}
