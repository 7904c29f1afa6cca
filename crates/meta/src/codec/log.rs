//! Log records: a context and an op. Since version 2 the context has a moment.
//!
//! A page of a run's log is a sequence of log records, each preceded by its length.

use super::op::{read_op, write_op};
use super::{DecodeError, Decoder, Encoder};
use crate::{LoggedRun, Moment, Op, OpContext, Seqno};

const VERSION: u8 = 2;

const RUN_VERSION: u8 = 1;

/// Encodes an op and its context for the log.
pub fn encode_log_record(context: &OpContext, op: &Op) -> Vec<u8> {
    let mut encoder = Encoder::with_version(VERSION);
    encoder.time(context.now);
    encoder.moment(context.at);
    encoder.number(context.uid.into());
    encoder.number(context.gid.into());
    write_op(&mut encoder, op);
    encoder.into_bytes()
}

/// Decodes a log record.
pub fn decode_log_record(bytes: &[u8]) -> Result<(OpContext, Op), DecodeError> {
    let mut decoder = Decoder::with_version(bytes, "a log record", VERSION)?;
    let now = decoder.time()?;
    let at = if bytes.first() == Some(&1) { Moment::default() } else { decoder.moment()? };
    let context = OpContext { now, at, uid: decoder.number_u32()?, gid: decoder.number_u32()? };
    let op = read_op(&mut decoder)?;
    decoder.finish()?;
    Ok((context, op))
}

/// Appends an op and its context to a page of a run's log.
pub fn append_to_log_page(page: &mut Vec<u8>, context: &OpContext, op: &Op) {
    let mut encoder = Encoder::default();
    encoder.bytes(&encode_log_record(context, op));
    page.extend(encoder.into_bytes());
}

/// Decodes a page of a run's log.
pub fn decode_log_page(bytes: &[u8]) -> Result<Vec<(OpContext, Op)>, DecodeError> {
    let mut decoder = Decoder::new(bytes);
    let mut ops = Vec::new();
    while !decoder.is_empty() {
        ops.push(decode_log_record(decoder.bytes()?)?);
    }
    Ok(ops)
}

/// Encodes the description of a run in the log.
pub fn encode_logged_run(run: &LoggedRun) -> Vec<u8> {
    let mut encoder = Encoder::with_version(RUN_VERSION);
    encoder.number(run.version.0);
    encoder.number(run.pages.into());
    encoder.number(run.ops);
    encoder.number(run.bytes);
    encoder.into_bytes()
}

/// Decodes the description of a run in the log.
pub fn decode_logged_run(bytes: &[u8]) -> Result<LoggedRun, DecodeError> {
    let mut decoder = Decoder::with_version(bytes, "a run in the log", RUN_VERSION)?;
    let run = LoggedRun {
        version: Seqno(decoder.number()?),
        pages: decoder.number_u32()?,
        ops: decoder.number()?,
        bytes: decoder.number()?,
    };
    decoder.finish()?;
    Ok(run)
}
