//! Log records: a context and an op. Since version 2 the context has a moment.

use super::op::{read_op, write_op};
use super::{DecodeError, Decoder, Encoder};
use crate::{Moment, Op, OpContext};

const VERSION: u8 = 2;

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
