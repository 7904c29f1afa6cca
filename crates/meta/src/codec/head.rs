//! The record of a persistent engine's head.

use super::{DecodeError, Sink, Source};
use crate::engine::Seqno;

const VERSION: u8 = 1;

/// The state of a persistent engine. Its version is the version of everything the engine keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadRecord {
    /// The newest commit.
    pub head: Seqno,
    /// The op log is complete after this commit.
    pub cut: Seqno,
}

/// The record of a head.
pub fn encode_head(record: HeadRecord) -> Vec<u8> {
    let mut sink = Sink::with_version(VERSION);
    sink.number(record.head.0);
    sink.number(record.head.0.saturating_sub(record.cut.0));
    sink.into_bytes()
}

/// The head of a record.
pub fn decode_head(bytes: &[u8]) -> Result<HeadRecord, DecodeError> {
    let mut source = Source::with_version(bytes, "a metadata engine", VERSION)?;
    let head = source.number()?;
    let cut =
        head.checked_sub(source.number()?).ok_or(DecodeError::Field("a log that ends after its head"))?;
    source.finish()?;
    Ok(HeadRecord { head: Seqno(head), cut: Seqno(cut) })
}
