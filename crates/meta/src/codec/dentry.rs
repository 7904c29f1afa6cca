//! Dentry records: version, kind, inode number.

use super::primitives::{kind_from, kind_number};
use super::{DecodeError, Decoder, Encoder};
use crate::Dentry;

const VERSION: u8 = 1;

/// Encodes a dentry.
pub fn encode_dentry(dentry: Dentry) -> Vec<u8> {
    let mut encoder = Encoder::with_version(VERSION);
    encoder.byte(kind_number(dentry.kind));
    encoder.ino(dentry.ino);
    encoder.into_bytes()
}

/// Decodes a dentry.
pub fn decode_dentry(bytes: &[u8]) -> Result<Dentry, DecodeError> {
    let mut decoder = Decoder::with_version(bytes, "a dentry", VERSION)?;
    let kind = kind_from(decoder.byte()?)?;
    let dentry = Dentry { kind, ino: decoder.ino()? };
    decoder.finish()?;
    Ok(dentry)
}
