//! Dentry records: version, kind, inode number.

use super::primitives::{kind_from, kind_number};
use super::{DecodeError, Sink, Source};
use crate::Dentry;

const VERSION: u8 = 1;

/// The record of a dentry.
pub fn encode_dentry(dentry: Dentry) -> Vec<u8> {
    let mut sink = Sink::with_version(VERSION);
    sink.byte(kind_number(dentry.kind));
    sink.ino(dentry.ino);
    sink.into_bytes()
}

/// The dentry of a record.
pub fn decode_dentry(bytes: &[u8]) -> Result<Dentry, DecodeError> {
    let mut source = Source::with_version(bytes, "a dentry", VERSION)?;
    let kind = kind_from(source.byte()?)?;
    let dentry = Dentry { kind, ino: source.ino()? };
    source.finish()?;
    Ok(dentry)
}
