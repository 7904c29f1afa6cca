//! Envelopes: the outer form of tables and log segments in the bucket.
//!
//! An envelope has a header with a label, and the body, compressed by Zstandard. The label repeats what the object's key says, so
//! that an object under a wrong key is noticed. The checksum (CRC-32C) covers label, length and compressed body.
//!
//! | offset | length | field |
//! |---|---|---|
//! | 0 | 8 | `TENONMDB` |
//! | 8 | 1 | version, 1 |
//! | 9 | 1 | kind: 1 table, 2 log |
//! | 10 | 8 | lineage |
//! | 18 | 4 | epoch |
//! | 22 | 8 | table: sequence number of the snapshot; log: first sequence number |
//! | 30 | 8 | table: number; log: last sequence number |
//! | 38 | 8 | length of the body before compression |
//! | 46 | 4 | checksum |
//!
//! All numbers are big-endian.

use crate::keys::{Lineage, Part};
use log::Crc;
use std::io;

const MAGIC: &[u8; 8] = b"TENONMDB";
const VERSION: u8 = 1;
const LABEL_BYTES: usize = 38;
const HEADER_BYTES: usize = 50;

/// Maximum length of a body. A writer ends a body far earlier, but one record may be long.
const BODY_BYTES_MAX: u64 = 256 << 20;

/// Compression level: backups run while programs use the mount, so processor time matters more than a few percent of length.
const LEVEL: i32 = 1;

/// Compresses and labels the body of a part.
pub(crate) fn seal(lineage: Lineage, part: Part, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut sealed = label(lineage, part);
    sealed.extend_from_slice(&(body.len() as u64).to_be_bytes());
    sealed.extend_from_slice(&[0; 4]);
    let packed = zstd::bulk::compress(body, LEVEL)?;
    sealed.extend_from_slice(&packed);
    let crc = checksum(&sealed);
    sealed[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_be_bytes());
    Ok(sealed)
}

/// Returns the body of a part, or what is wrong, as a predicate.
pub(crate) fn open(lineage: Lineage, part: Part, sealed: &[u8]) -> Result<Vec<u8>, String> {
    let Some((header, packed)) = sealed.split_first_chunk::<HEADER_BYTES>() else {
        return Err("is cut off".into());
    };
    match header.first_chunk() {
        Some(MAGIC) if header[8] == VERSION => {}
        Some(MAGIC) if header[8] > VERSION => {
            return Err(format!("has version {}; use a newer Tenon", header[8]));
        }
        _ => return Err("is not a part of a backup".into()),
    }
    let (mut len, mut crc) = ([0; 8], [0; 4]);
    len.copy_from_slice(&header[LABEL_BYTES..HEADER_BYTES - 4]);
    crc.copy_from_slice(&header[HEADER_BYTES - 4..]);
    let len = u64::from_be_bytes(len);
    if u32::from_be_bytes(crc) != checksum(sealed) || len > BODY_BYTES_MAX {
        return Err("has a wrong checksum".into());
    }
    if header[..LABEL_BYTES] != label(lineage, part) {
        return Err("is another part of a backup under this key".into());
    }
    let body = zstd::bulk::decompress(packed, len as usize).map_err(|_| "cannot be decompressed")?;
    if body.len() as u64 == len { Ok(body) } else { Err("has a wrong length".into()) }
}

fn label(lineage: Lineage, part: Part) -> Vec<u8> {
    let (kind, epoch, first, second) = match part {
        Part::Table { epoch, seqno, number } => (1, epoch.0, seqno.0, u64::from(number)),
        Part::Log { epoch, from, to } => (2, epoch.0, from.0, to.0),
        Part::Generation | Part::Manifest { .. } => (0, 0, 0, 0),
    };
    let mut label = Vec::with_capacity(HEADER_BYTES);
    label.extend_from_slice(MAGIC);
    label.extend_from_slice(&[VERSION, kind]);
    label.extend_from_slice(&lineage.0.to_be_bytes());
    label.extend_from_slice(&epoch.to_be_bytes());
    label.extend_from_slice(&first.to_be_bytes());
    label.extend_from_slice(&second.to_be_bytes());
    label
}

/// Returns the checksum of everything but the checksum itself.
fn checksum(sealed: &[u8]) -> u32 {
    let mut crc = Crc::default();
    crc.add(&sealed[..HEADER_BYTES - 4]);
    crc.add(&sealed[HEADER_BYTES..]);
    crc.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Epoch;
    use meta::Seqno;

    #[test]
    fn no_changed_byte_goes_unseen() {
        let part = Part::Log { epoch: Epoch(1), from: Seqno(2), to: Seqno(9) };
        let body = b"ops ops ops ops".repeat(9);
        let sealed = seal(Lineage(5), part, &body).unwrap();
        assert_eq!(open(Lineage(5), part, &sealed).unwrap(), body);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 0x10;
            assert!(open(Lineage(5), part, &changed).is_err(), "byte {at}");
            assert!(open(Lineage(5), part, &sealed[..at]).is_err(), "cut at {at}");
        }
        let other = Part::Log { epoch: Epoch(1), from: Seqno(2), to: Seqno(8) };
        assert!(open(Lineage(5), other, &sealed).unwrap_err().contains("another part"));
        assert!(open(Lineage(6), part, &sealed).is_err());
    }
}
