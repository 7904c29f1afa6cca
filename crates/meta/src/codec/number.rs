//! Records that consist of a number, such as the inode number counter.

use super::{DecodeError, Decoder, Encoder};

const VERSION: u8 = 1;

/// Encodes a number.
pub fn encode_number(number: u64) -> Vec<u8> {
    let mut encoder = Encoder::with_version(VERSION);
    encoder.number(number);
    encoder.into_bytes()
}

/// Decodes a number.
pub fn decode_number(bytes: &[u8]) -> Result<u64, DecodeError> {
    let mut decoder = Decoder::with_version(bytes, "a number", VERSION)?;
    let number = decoder.number()?;
    decoder.finish()?;
    Ok(number)
}
