//! The stored form of a record: the number of the commit that wrote it (8 bytes, big-endian), then the value.

use meta::{EngineError, Seqno, Versioned};
use std::collections::BTreeMap;

/// Changes by key: the new row, or `None` to delete the key.
pub(crate) type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

const VERSION_BYTES: usize = 8;

pub(crate) fn encode(version: Seqno, value: &[u8]) -> Vec<u8> {
    let mut row = Vec::with_capacity(VERSION_BYTES + value.len());
    encode_into(&mut row, version, value);
    row
}

/// Encodes a row into a buffer, whose content is replaced.
pub(crate) fn encode_into(row: &mut Vec<u8>, version: Seqno, value: &[u8]) {
    row.clear();
    row.extend_from_slice(&version.0.to_be_bytes());
    row.extend_from_slice(value);
}

pub(crate) fn decode(row: &[u8]) -> Result<Versioned, EngineError> {
    let (version, value) = split(row)?;
    Ok(Versioned { value: value.into(), version })
}

/// Splits a row into its version and its value. `Corrupt`: it is shorter than a version.
pub(crate) fn split(row: &[u8]) -> Result<(Seqno, &[u8]), EngineError> {
    let (version, value) = row
        .split_first_chunk::<VERSION_BYTES>()
        .ok_or_else(|| EngineError::Corrupt("a record is shorter than its version".into()))?;
    Ok((Seqno(u64::from_be_bytes(*version)), value))
}
