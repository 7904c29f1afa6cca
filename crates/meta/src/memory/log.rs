//! The op log of the in-memory engine.

use crate::codec::{decode_log_page, decode_log_record, encode_log_record};
use crate::engine::{LogCap, LoggedOp, OpRecord};
use crate::error::{EngineError, LogError};
use crate::log_span::LogSpan;
use crate::record::Seqno;
use crate::run::LoggedRun;
use std::collections::VecDeque;

/// Memory that a record takes in the queue and in the span, besides its bytes.
const RECORD_BYTES: u64 = 72;

/// A log of ops in memory, with its consumers.
#[derive(Debug, Clone)]
pub(super) struct Log {
    span: LogSpan,
    records: VecDeque<(Seqno, Box<[u8]>)>,
}

impl Log {
    pub(super) fn new(cap: LogCap) -> Self {
        Self { span: LogSpan::new(cap, Seqno(0)), records: VecDeque::new() }
    }

    pub(super) fn append(&mut self, seqno: Seqno, ops: &[OpRecord]) {
        let mut bytes = 0;
        for op in ops {
            let record = encode_log_record(op);
            bytes += record.len() as u64 + RECORD_BYTES;
            self.records.push_back((seqno, record.into()));
        }
        self.span.append(seqno, ops.len(), bytes);
        self.drop_cut_records();
    }

    /// Adds the ops of a run, whose pages have sequence numbers of their own.
    pub(super) fn append_run(
        &mut self,
        seqno: Seqno,
        run: &LoggedRun,
        pages: &[Vec<u8>],
    ) -> Result<(), EngineError> {
        for (page, nr) in pages.iter().zip(0..) {
            for record in decode_log_page(page)? {
                self.records.push_back((run.seqno_of_page(seqno, nr), encode_log_record(&record).into()));
            }
        }
        self.span.append_run(seqno, run);
        self.drop_cut_records();
        Ok(())
    }

    /// Returns about `limit` ops after a cursor, in whole commits.
    pub(super) fn read_after(
        &self,
        cursor: Seqno,
        limit: usize,
        head: Seqno,
    ) -> Result<Vec<LoggedOp>, LogError> {
        self.span.reaches(cursor, head)?;
        let mut ops: Vec<LoggedOp> = Vec::new();
        let begin = self.records.partition_point(|(seqno, _)| *seqno <= cursor);
        for (seqno, record) in self.records.range(begin..) {
            if ops.len() >= limit && ops.last().is_some_and(|last| last.seqno != *seqno) {
                break;
            }
            ops.push(LoggedOp::new(*seqno, decode_log_record(record).map_err(EngineError::from)?));
        }
        Ok(ops)
    }

    pub(super) fn register(&mut self, consumer: &str, at: Seqno, head: Seqno) -> Result<(), LogError> {
        self.span.register(consumer, at, head)?;
        self.drop_cut_records();
        Ok(())
    }

    pub(super) fn cursor(&self, consumer: &str, head: Seqno) -> Result<Seqno, LogError> {
        self.span.cursor(consumer, head)
    }

    pub(super) fn advance(&mut self, consumer: &str, to: Seqno, head: Seqno) -> Result<(), LogError> {
        self.span.advance(consumer, to, head)?;
        self.drop_cut_records();
        Ok(())
    }

    pub(super) fn forget(&mut self, consumer: &str) {
        self.span.forget(consumer);
        self.drop_cut_records();
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.span.bytes()
    }

    /// Drops the records that are cut off from the log.
    fn drop_cut_records(&mut self) {
        let cut = self.span.cut();
        while self.records.pop_front_if(|(seqno, _)| *seqno <= cut).is_some() {}
    }
}
