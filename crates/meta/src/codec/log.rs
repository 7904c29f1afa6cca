//! Log records: an origin and an op. Since version 2 the origin has a moment.

use super::op::{read_op, write_op};
use super::{DecodeError, Decoder, Encoder};
use crate::{Moment, Op, Origin};

const VERSION: u8 = 2;

/// Encodes an op and its origin for the log.
pub fn encode_log_record(origin: &Origin, op: &Op) -> Vec<u8> {
    let mut encoder = Encoder::with_version(VERSION);
    encoder.time(origin.now);
    encoder.moment(origin.at);
    encoder.number(origin.uid.into());
    encoder.number(origin.gid.into());
    write_op(&mut encoder, op);
    encoder.into_bytes()
}

/// Decodes a log record.
pub fn decode_log_record(bytes: &[u8]) -> Result<(Origin, Op), DecodeError> {
    let mut decoder = Decoder::with_version(bytes, "a log record", VERSION)?;
    let now = decoder.time()?;
    let at = if bytes.first() == Some(&1) { Moment::default() } else { decoder.moment()? };
    let origin = Origin { now, at, uid: decoder.number_u32()?, gid: decoder.number_u32()? };
    let op = read_op(&mut decoder)?;
    decoder.finish()?;
    Ok((origin, op))
}
