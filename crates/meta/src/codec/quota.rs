//! Quota records: limits and usage.

use super::{DecodeError, Decoder, Encoder};
use crate::record::Value;
use crate::{Limits, Quota, Usage};

const VERSION: u8 = 1;

/// Encodes a quota.
pub fn encode_quota(quota: &Quota) -> Vec<u8> {
    let mut encoder = Encoder::with_version(VERSION);
    write_limits(&mut encoder, quota.limits);
    for used in [quota.used.bytes, quota.used.files] {
        encoder.number(u64::try_from(used).unwrap_or(0));
    }
    encoder.into_bytes()
}

/// Decodes a quota.
pub fn decode_quota(bytes: &[u8]) -> Result<Quota, DecodeError> {
    let mut decoder = Decoder::with_version(bytes, "a quota", VERSION)?;
    let limits = read_limits(&mut decoder)?;
    let mut used = || {
        let used = i64::try_from(decoder.number()?);
        used.map_err(|_| DecodeError::Field("a quota whose usage is out of range"))
    };
    let used = Usage { bytes: used()?, files: used()? };
    decoder.finish()?;
    Ok(Quota { limits, used })
}

pub(super) fn write_limits(encoder: &mut Encoder, limits: Limits) {
    encoder.option(limits.bytes, Encoder::number);
    encoder.option(limits.files, Encoder::number);
}

pub(super) fn read_limits(decoder: &mut Decoder<'_>) -> Result<Limits, DecodeError> {
    Ok(Limits { bytes: decoder.option(Decoder::number)?, files: decoder.option(Decoder::number)? })
}

/// Applies a merge to a quota record: adds `amount` to the usage. Fails if the usage would become negative.
pub(crate) fn merge_quota(bytes: &[u8], amount: Usage) -> Result<Value, DecodeError> {
    let quota = decode_quota(bytes)?;
    let used = quota.used.plus(amount);
    if used.bytes < 0 || used.files < 0 {
        return Err(DecodeError::Field("a quota whose usage is negative"));
    }
    Ok(encode_quota(&Quota { used, ..quota }).into())
}
