//! Changes of rows, and their form in tables.
//!
//! A change is a tag byte and its fields: 0, a removal; 1, the new value; 2, a merge into an inode (links, mtime and ctime, little-endian); 3, a
//! merge into the usage of a quota (bytes and files, little-endian).

use meta::codec::DecodeError;
use meta::{Merge, Usage, Value};
use store::Timestamp;

const DELETE: u8 = 0;
const PUT: u8 = 1;
const MERGE_INODE: u8 = 2;
const MERGE_USAGE: u8 = 3;

/// The change of a row relative to the base. `Put` has the new record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    Put(Value),
    Delete,
    /// A merge into a record of the base, which must have one under the key.
    Merge(Merge),
}

impl Change {
    /// Returns the approximate memory of the change, in bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        match self {
            Self::Put(value) => value.len() + 16,
            Self::Delete | Self::Merge(_) => 24,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Delete => vec![DELETE],
            Self::Put(value) => [&[PUT], &value[..]].concat(),
            Self::Merge(Merge::Inode { nlink, mtime, ctime }) => {
                [&[MERGE_INODE][..], &nlink.to_le_bytes(), &mtime.0.to_le_bytes(), &ctime.0.to_le_bytes()]
                    .concat()
            }
            Self::Merge(Merge::Usage(Usage { bytes, files })) => {
                [&[MERGE_USAGE][..], &bytes.to_le_bytes(), &files.to_le_bytes()].concat()
            }
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (&tag, mut fields) = bytes.split_first().ok_or(DecodeError::Truncated)?;
        let change = match tag {
            PUT => return Ok(Self::Put(fields.into())),
            DELETE => Self::Delete,
            MERGE_INODE => Self::Merge(Merge::Inode {
                nlink: i32::from_le_bytes(take(&mut fields)?),
                mtime: Timestamp(i64::from_le_bytes(take(&mut fields)?)),
                ctime: Timestamp(i64::from_le_bytes(take(&mut fields)?)),
            }),
            MERGE_USAGE => Self::Merge(Merge::Usage(Usage {
                bytes: i64::from_le_bytes(take(&mut fields)?),
                files: i64::from_le_bytes(take(&mut fields)?),
            })),
            found => return Err(DecodeError::Tag { what: "a change", found }),
        };
        if fields.is_empty() { Ok(change) } else { Err(DecodeError::Trailing(fields.len())) }
    }
}

/// Returns the record that an encoded change puts; `None` for a removal or a merge.
pub(crate) fn put_record(bytes: &[u8]) -> Option<&[u8]> {
    bytes.split_first().filter(|(tag, _)| **tag == PUT).map(|(_, record)| record)
}

/// Returns whether an encoded change removes a record.
pub(crate) fn is_delete(bytes: &[u8]) -> bool {
    bytes == [DELETE]
}

/// Returns the first `N` bytes and removes them from the slice.
fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], DecodeError> {
    let (first, rest) = bytes.split_first_chunk::<N>().ok_or(DecodeError::Truncated)?;
    *bytes = rest;
    Ok(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_round_trip_and_damaged_ones_are_rejected() {
        let changes = [
            Change::Delete,
            Change::Put([][..].into()),
            Change::Put(b"row"[..].into()),
            Change::Merge(Merge::Inode { nlink: -3, mtime: Timestamp(i64::MIN), ctime: Timestamp(7) }),
            Change::Merge(Merge::Usage(Usage { bytes: -1, files: 1 << 40 })),
        ];
        for change in &changes {
            let bytes = change.encode();
            assert_eq!(Change::decode(&bytes).as_ref(), Ok(change));
            if !matches!(change, Change::Put(_)) {
                assert!(Change::decode(&bytes[..bytes.len() - 1]).is_err());
                assert!(Change::decode(&[&bytes[..], &[0]].concat()).is_err());
            }
        }
        assert!(Change::decode(&[9]).is_err());
    }
}
