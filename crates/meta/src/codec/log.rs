//! Log records: a context, the effects that the op does not tell, and the op. Since version 2 the context has a moment, since version 3
//! an origin, and the record has effects.
//!
//! A page of a run's log is a sequence of log records, each preceded by its length.

use super::op::{read_op, write_op};
use super::{DecodeError, Decoder, Encoder};
use crate::engine::OpRecord;
use crate::{Effect, Ino, LoggedRun, Moment, OpContext, Origin, Refreshed, Seqno};

const VERSION: u8 = 3;

const RUN_VERSION: u8 = 1;

/// The bits of the origin in the byte for origin and effects.
const ORIGIN_BITS: u8 = 0b11;
/// Bit of that byte: the effects have an inode.
const HAS_INODE: u8 = 1 << 2;
/// Bit of that byte: the effects have a second inode.
const HAS_OTHER: u8 = 1 << 3;
/// Number of the first bit of [`Refreshed`] in that byte.
const REFRESHED_SHIFT: u32 = 4;

/// Encodes an op for the log.
pub fn encode_log_record(record: &OpRecord) -> Vec<u8> {
    let OpRecord { context, op, effect } = record;
    let mut encoder = Encoder::with_version(VERSION);
    encoder.time(context.now);
    encoder.moment(context.at);
    encoder.number(context.uid.into());
    encoder.number(context.gid.into());
    encoder.byte(flags(context.origin, effect));
    effect.inode.into_iter().chain(effect.other).for_each(|ino| encoder.ino(ino));
    write_op(&mut encoder, op);
    encoder.into_bytes()
}

/// Decodes a log record.
pub fn decode_log_record(bytes: &[u8]) -> Result<OpRecord, DecodeError> {
    let mut decoder = Decoder::with_version(bytes, "a log record", VERSION)?;
    let version = bytes.first().copied().unwrap_or_default();
    let now = decoder.time()?;
    let at = if version == 1 { Moment::default() } else { decoder.moment()? };
    let (uid, gid) = (decoder.number_u32()?, decoder.number_u32()?);
    let (origin, effect) = if version < 3 { Default::default() } else { read_effects(&mut decoder)? };
    let op = read_op(&mut decoder)?;
    decoder.finish()?;
    Ok(OpRecord { context: OpContext { now, at, uid, gid, origin }, op, effect })
}

/// Returns the byte with the origin of an op, the kind of its refresh, and the presence of its other effects.
fn flags(origin: Origin, effect: &Effect) -> u8 {
    let origin = match origin {
        Origin::Other => 0,
        Origin::FrontEnd => 1,
        Origin::Bookkeeping => 2,
    };
    let refreshed = match effect.refreshed {
        Refreshed::Nothing => 0,
        Refreshed::Attributes => 1,
        Refreshed::Content => 2,
    };
    let has = |ino: Option<Ino>, bit| if ino.is_some() { bit } else { 0 };
    origin | has(effect.inode, HAS_INODE) | has(effect.other, HAS_OTHER) | refreshed << REFRESHED_SHIFT
}

fn read_effects(decoder: &mut Decoder<'_>) -> Result<(Origin, Effect), DecodeError> {
    let flags = decoder.byte()?;
    let origin = match flags & ORIGIN_BITS {
        0 => Origin::Other,
        1 => Origin::FrontEnd,
        2 => Origin::Bookkeeping,
        _ => return Err(DecodeError::Field("an invalid origin")),
    };
    let refreshed = match flags >> REFRESHED_SHIFT {
        0 => Refreshed::Nothing,
        1 => Refreshed::Attributes,
        2 => Refreshed::Content,
        _ => return Err(DecodeError::Field("an invalid change by an observation")),
    };
    let mut read = |bit| if flags & bit != 0 { decoder.ino().map(Some) } else { Ok(None) };
    Ok((origin, Effect { inode: read(HAS_INODE)?, other: read(HAS_OTHER)?, refreshed }))
}

/// Appends an op to a page of a run's log.
pub fn append_to_log_page(page: &mut Vec<u8>, record: &OpRecord) {
    let mut encoder = Encoder::default();
    encoder.bytes(&encode_log_record(record));
    page.extend(encoder.into_bytes());
}

/// Decodes a page of a run's log.
pub fn decode_log_page(bytes: &[u8]) -> Result<Vec<OpRecord>, DecodeError> {
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
