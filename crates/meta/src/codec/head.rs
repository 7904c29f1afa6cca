//! Head records of persistent engines.

use super::{DecodeError, Decoder, Encoder};
use crate::record::Seqno;
use std::ops::RangeInclusive;

const VERSION: u8 = 2;

/// The version without runs in the log, which earlier builds can open.
const VERSION_WITHOUT_RUNS: u8 = 1;

/// The versions of head records that this Tenon reads.
pub const HEAD_VERSIONS: RangeInclusive<u8> = VERSION_WITHOUT_RUNS..=VERSION;

/// The state of a persistent engine. The version of this record is the version of the whole database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadRecord {
    /// The newest commit.
    pub head: Seqno,
    /// The commit after which the op log is complete.
    pub cut: Seqno,
    /// Whether the log has runs.
    pub has_runs: bool,
}

/// Encodes a head record.
pub fn encode_head(record: HeadRecord) -> Vec<u8> {
    let mut encoder = Encoder::with_version(if record.has_runs { VERSION } else { VERSION_WITHOUT_RUNS });
    encoder.number(record.head.0);
    encoder.number(record.head.0.saturating_sub(record.cut.0));
    encoder.into_bytes()
}

/// Decodes a head record.
pub fn decode_head(bytes: &[u8]) -> Result<HeadRecord, DecodeError> {
    let mut decoder = Decoder::with_version(bytes, "a metadata engine", VERSION)?;
    let head = decoder.number()?;
    let cut =
        head.checked_sub(decoder.number()?).ok_or(DecodeError::Field("a log that begins after its head"))?;
    decoder.finish()?;
    let has_runs = bytes.first() == Some(&VERSION);
    Ok(HeadRecord { head: Seqno(head), cut: Seqno(cut), has_runs })
}
