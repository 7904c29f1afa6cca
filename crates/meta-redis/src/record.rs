//! Records as the server stores them: version, shape, the numbers of the shape, and the value.
//!
//! `scripts/changes.lua` describes the shapes and merges into them. Numbers are big-endian.

use crate::failure::unexpected;
use meta::{Merge, Seqno, Versioned, schema};
use meta_remote::{Change, Failure, Merged, Sums};

/// The shapes of records, as in `scripts/changes.lua`.
const PLAIN: u8 = 0;
const COUNTED: u8 = 1;
const COUNTED_MERGED: u8 = 2;
const SUMMED: u8 = 3;
const SUMMED_MERGED: u8 = 4;
const REFERRING: u8 = 5;

/// Returns a record that is put, from its shape on: the script puts the version in front.
pub(crate) fn encode(key: &[u8], sums: Sums, value: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(17 + value.len());
    match (sums.sum1, sums.sum2) {
        (Some(ino), Some(_)) if schema::all_dentries().contains(key) => {
            record.push(REFERRING);
            record.extend(ino.to_be_bytes());
        }
        (Some(sum1), Some(sum2)) => {
            record.push(SUMMED);
            record.extend(sum1.to_be_bytes());
            record.extend(sum2.to_be_bytes());
        }
        (Some(count), None) => {
            record.push(COUNTED);
            record.extend(u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
        }
        (None, _) => record.push(PLAIN),
    }
    record.extend(value);
    record
}

/// Returns a merge as scripts take it: the type, and the four numbers of the change.
pub(crate) fn encode_change(key: &[u8], merge: Merge) -> Result<Vec<u8>, Failure> {
    let Change { sum1, sum2, max1, max2 } = Change::of(key, merge).map_err(Failure::Refused)?;
    let mut change = vec![match merge {
        Merge::Inode { .. } => b'i',
        Merge::Usage(_) => b'q',
    }];
    [sum1, sum2, max1, max2].iter().for_each(|number| change.extend(number.to_be_bytes()));
    Ok(change)
}

/// Returns a version as records have it.
pub(crate) fn encode_version(version: Seqno) -> [u8; 8] {
    version.0.to_be_bytes()
}

/// Returns a record with what was merged into it.
pub(crate) fn decode(key: &[u8], record: &[u8]) -> Result<Versioned, Failure> {
    let Start { version, merged, value } = Start::of(record)?;
    let value = match merged {
        Some(merged) => merged.put_into(key, value).map_err(Failure::Refused)?,
        None => value.into(),
    };
    Ok(Versioned { value, version })
}

/// The start of a record, and its value.
pub(crate) struct Start<'r> {
    pub(crate) version: Seqno,
    /// The numbers, if something was merged into the record.
    pub(crate) merged: Option<Merged>,
    pub(crate) value: &'r [u8],
}

impl<'r> Start<'r> {
    /// Splits a record into its start and its value. Fails if its shape is not known.
    pub(crate) fn of(record: &'r [u8]) -> Result<Self, Failure> {
        let mut rest = Rest(record);
        let version = Seqno(rest.number()?.unsigned_abs());
        let merged = match rest.byte()? {
            PLAIN => None,
            COUNTED => {
                rest.count()?;
                None
            }
            COUNTED_MERGED => {
                let sum1 = rest.count()?.into();
                Some(Merged { sum1, sum2: 0, max1: rest.number()?, max2: rest.number()? })
            }
            shape @ (SUMMED | SUMMED_MERGED) => {
                let merged = Merged { sum1: rest.number()?, sum2: rest.number()?, max1: 0, max2: 0 };
                (shape == SUMMED_MERGED).then_some(merged)
            }
            REFERRING => {
                rest.number()?;
                None
            }
            _ => return Err(unexpected()),
        };
        Ok(Self { version, merged, value: rest.0 })
    }
}

/// The rest of a record that is being decoded.
struct Rest<'r>(&'r [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Failure> {
        let (taken, rest) = self.0.split_first_chunk().ok_or_else(unexpected)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, Failure> {
        self.take::<1>().map(|[byte]| byte)
    }

    /// Takes a number of 4 bytes.
    fn count(&mut self) -> Result<u32, Failure> {
        self.take().map(u32::from_be_bytes)
    }

    /// Takes a number of 8 bytes.
    fn number(&mut self) -> Result<i64, Failure> {
        self.take().map(i64::from_be_bytes)
    }
}
