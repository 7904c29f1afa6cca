//! Log records: the context and the op. Since version 2 the context has a moment.

use super::op::{read_op, write_op};
use super::{DecodeError, Sink, Source};
use crate::{Ctx, Moment, Op};

const VERSION: u8 = 2;

/// The record of an op in the log.
pub fn encode_log_record(ctx: &Ctx, op: &Op) -> Vec<u8> {
    let mut sink = Sink::with_version(VERSION);
    sink.time(ctx.now);
    sink.moment(ctx.at);
    sink.number(ctx.uid.into());
    sink.number(ctx.gid.into());
    write_op(&mut sink, op);
    sink.into_bytes()
}

/// The op of a log record.
pub fn decode_log_record(bytes: &[u8]) -> Result<(Ctx, Op), DecodeError> {
    let mut source = Source::with_version(bytes, "a log record", VERSION)?;
    let now = source.time()?;
    let at = if bytes.first() == Some(&1) { Moment::default() } else { source.moment()? };
    let ctx = Ctx { now, at, uid: source.number_u32()?, gid: source.number_u32()? };
    let op = read_op(&mut source)?;
    source.finish()?;
    Ok((ctx, op))
}
