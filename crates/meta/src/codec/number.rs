//! Records that hold one number: the inode number counter, the group of a set-group-id directory.

use super::{DecodeError, Sink, Source};

const VERSION: u8 = 1;

/// The record of a number.
pub fn encode_number(number: u64) -> Vec<u8> {
    let mut sink = Sink::with_version(VERSION);
    sink.number(number);
    sink.into_bytes()
}

/// The number of a record.
pub fn decode_number(bytes: &[u8]) -> Result<u64, DecodeError> {
    let mut source = Source::with_version(bytes, "a number", VERSION)?;
    let number = source.number()?;
    source.finish()?;
    Ok(number)
}
