//! Segments of the op log.
//!
//! The body of a segment is the time at which it was read (8 bytes), then ops: the sequence number (8 bytes), the length (4 bytes) and the
//! log record ([`meta::codec::encode_log_record`]). Numbers are big-endian.

use crate::envelope;
use crate::keys::{Epoch, Lineage, Part};
use crate::{Error, Result};
use meta::codec::{decode_log_record, encode_log_record};
use meta::{LoggedOp, Op, OpRecord, Seqno};
use std::mem;
use store::{ObjectKey, Timestamp};

/// Length of a body at which a segment ends.
const BODY_BYTES: usize = 4 << 20;

/// A segment that is ready for the bucket: the ops after `from`, up to and including `to`.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) from: Seqno,
    pub(crate) to: Seqno,
    body: Vec<u8>,
}

/// The content of a segment.
#[derive(Debug)]
pub(crate) struct Opened {
    /// When the pass that stored the segment began to read the log, by the clock of the machine.
    pub(crate) read_at: Timestamp,
    pub(crate) ops: Vec<LoggedOp>,
}

impl Segment {
    /// Returns the length of the encoded ops, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.body.len() as u64
    }

    pub(crate) fn part(&self, epoch: Epoch) -> Part {
        Part::Log { epoch, from: self.from, to: self.to }
    }

    /// Returns the object of the segment.
    pub(crate) fn seal(
        &self,
        lineage: Lineage,
        epoch: Epoch,
        read_at: Timestamp,
    ) -> std::io::Result<Vec<u8>> {
        let body = [&read_at.0.to_be_bytes(), self.body.as_slice()].concat();
        envelope::seal(lineage, self.part(epoch), &body)
    }
}

/// Gathers ops into segments.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    from: Seqno,
    to: Seqno,
    body: Vec<u8>,
    pub(crate) done: Vec<Segment>,
}

impl SegmentWriter {
    pub(crate) fn new(from: Seqno) -> Self {
        Self { from, to: from, body: Vec::new(), done: Vec::new() }
    }

    /// Adds the next op. A segment ends only between commits.
    pub(crate) fn add(&mut self, logged: &LoggedOp) {
        if logged.seqno != self.to && self.body.len() >= BODY_BYTES {
            self.end();
        }
        let LoggedOp { seqno, context, op, effect } = logged;
        let record = OpRecord { context: *context, op: op.clone(), effect: *effect };
        let record = encode_log_record(&record);
        self.body.extend_from_slice(&seqno.0.to_be_bytes());
        self.body.extend_from_slice(&(record.len() as u32).to_be_bytes());
        self.body.extend_from_slice(&record);
        self.to = *seqno;
    }

    /// Ends the last segment.
    pub(crate) fn end(&mut self) {
        if !self.body.is_empty() {
            self.done.push(Segment { from: self.from, to: self.to, body: mem::take(&mut self.body) });
            self.from = self.to;
        }
    }
}

/// Returns whether an op changes something that only the metadata has. Other ops record what the bucket shows, what only this
/// mount needs, or that a file was read; a backup of them can wait for the next op that matters.
pub(crate) fn matters(op: &Op) -> bool {
    !matches!(
        op,
        Op::Root { .. }
            | Op::Lease { .. }
            | Op::Import { .. }
            | Op::Refresh { .. }
            | Op::Vanish { .. }
            | Op::Evict { .. }
            | Op::Accessed { .. }
            | Op::AwaitExport { .. }
            | Op::Exported { .. }
    )
}

/// Decodes a segment, and checks that its ops are those of `part`.
///
/// # Errors
/// [`Error::Damaged`] if they are not, or a checksum is wrong.
pub(crate) fn open(lineage: Lineage, part: Part, key: &ObjectKey, object: &[u8]) -> Result<Opened> {
    let body = envelope::open(lineage, part, object).map_err(|what| Error::damaged(key, what))?;
    let Part::Log { from, to, .. } = part else { return Err(Error::damaged(key, "is not a segment")) };
    let (read_at, rest) = body.split_first_chunk().ok_or_else(|| Error::damaged(key, "has no time"))?;
    let ops = decode(rest).ok_or_else(|| Error::damaged(key, "has an invalid op"))?;
    let ascends = ops.is_sorted_by_key(|op| op.seqno)
        && ops.first().is_none_or(|op| op.seqno > from)
        && ops.last().is_some_and(|op| op.seqno == to);
    match ascends {
        true => Ok(Opened { read_at: Timestamp(i64::from_be_bytes(*read_at)), ops }),
        false => Err(Error::damaged(key, "has ops in a wrong order")),
    }
}

fn decode(mut rest: &[u8]) -> Option<Vec<LoggedOp>> {
    let mut ops = Vec::new();
    while !rest.is_empty() {
        let (seqno, after) = rest.split_first_chunk()?;
        let (len, after) = after.split_first_chunk()?;
        let (record, after) = after.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        ops.push(LoggedOp::new(Seqno(u64::from_be_bytes(*seqno)), decode_log_record(record).ok()?));
        rest = after;
    }
    Some(ops)
}
