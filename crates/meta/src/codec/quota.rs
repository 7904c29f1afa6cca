//! Quota records: limits and what is used of them.

use super::{DecodeError, Sink, Source};
use crate::engine::Value;
use crate::{Limits, Quota, Usage};

const VERSION: u8 = 1;

/// The record of a quota.
pub fn encode_quota(quota: &Quota) -> Vec<u8> {
    let mut sink = Sink::with_version(VERSION);
    write_limits(&mut sink, quota.limits);
    for used in [quota.used.bytes, quota.used.files] {
        sink.number(u64::try_from(used).unwrap_or(0));
    }
    sink.into_bytes()
}

/// The quota of a record.
pub fn decode_quota(bytes: &[u8]) -> Result<Quota, DecodeError> {
    let mut source = Source::with_version(bytes, "a quota", VERSION)?;
    let limits = read_limits(&mut source)?;
    let mut used = || {
        let used = i64::try_from(source.number()?);
        used.map_err(|_| DecodeError::Field("a quota of which more is used than there can be"))
    };
    let used = Usage { bytes: used()?, files: used()? };
    source.finish()?;
    Ok(Quota { limits, used })
}

pub(super) fn write_limits(sink: &mut Sink, limits: Limits) {
    sink.option(limits.bytes, Sink::number);
    sink.option(limits.files, Sink::number);
}

pub(super) fn read_limits(source: &mut Source<'_>) -> Result<Limits, DecodeError> {
    Ok(Limits { bytes: source.option(Source::number)?, files: source.option(Source::number)? })
}

/// A quota record after a merge.
pub(crate) fn merge_quota(bytes: &[u8], more: Usage) -> Result<Value, DecodeError> {
    let quota = decode_quota(bytes)?;
    let used = quota.used.plus(more);
    if used.bytes < 0 || used.files < 0 {
        return Err(DecodeError::Field("a quota of which less than nothing is used"));
    }
    Ok(encode_quota(&Quota { used, ..quota }).into())
}
