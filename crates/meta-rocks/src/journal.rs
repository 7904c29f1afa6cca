//! A journal that comes before the tables.
//!
//! With one, the database's own log is off: what a group changes is a record of the journal first, and the tables reach
//! the disk only after the records that made them. So names are never on the disk before data that the journal's keeper
//! was given earlier, whatever the moment at which the power goes.

use crate::tables::Changes;
use meta::KeyRange;
use std::fmt;
use std::io;

/// Who keeps the journal. Records are kept in the order of their numbers, and survive the end of the process when
/// `append` returns.
pub trait Journal: Send + Sync + fmt::Debug {
    /// Keeps a record; its number is higher than all before.
    fn append(&self, number: u64, record: Vec<u8>) -> io::Result<()>;

    /// Returns when every record so far survives the loss of power.
    fn sync(&self) -> io::Result<()>;

    /// Records up to this number are in tables that survive the loss of power: they are not needed any more.
    fn forget(&self, up_to: u64) -> io::Result<()>;
}

/// Records by number, ascending.
pub type Records = Vec<(u64, Vec<u8>)>;

/// The record of what is changed and of the range that goes.
pub(crate) fn encode(changes: &Changes, gone: Option<&KeyRange>) -> Vec<u8> {
    let mut record = Vec::new();
    put(&mut record, gone.map(|range| range.from.as_slice()));
    put(&mut record, gone.map(|range| range.to.as_slice()));
    for (key, row) in changes {
        put(&mut record, Some(key));
        put(&mut record, row.as_deref());
    }
    record
}

/// Encodes the record that cancels an earlier one, whose changes never reached the tables.
///
/// It is an ordinary record without changes whose range has an end and no beginning: the end is the number of the
/// cancelled record, 8 bytes, big-endian.
pub(crate) fn encode_cancel(number: u64) -> Vec<u8> {
    let mut record = Vec::new();
    put(&mut record, None);
    put(&mut record, Some(&number.to_be_bytes()));
    record
}

/// Returns the number of the record that this one cancels, if it is a cancellation.
pub(crate) fn decode_cancel(mut record: &[u8]) -> Option<u64> {
    let (None, Some(number)) = (take(&mut record)?, take(&mut record)?) else { return None };
    let number = u64::from_be_bytes(number.try_into().ok()?);
    record.is_empty().then_some(number)
}

/// The changes of a record and the range that goes; `None` if it is damaged.
pub(crate) fn decode(mut record: &[u8]) -> Option<(Changes, Option<KeyRange>)> {
    let (from, to) = (take(&mut record)?, take(&mut record)?);
    let gone = from.zip(to).map(|(from, to)| KeyRange { from, to });
    let mut changes = Changes::new();
    while !record.is_empty() {
        let key = take(&mut record)??;
        changes.insert(key, take(&mut record)?);
    }
    Some((changes, gone))
}

/// Absent bytes have the length that no bytes have.
const ABSENT: u32 = u32::MAX;

fn put(record: &mut Vec<u8>, bytes: Option<&[u8]>) {
    let len = bytes.map_or(ABSENT, |bytes| bytes.len() as u32);
    record.extend(len.to_le_bytes());
    record.extend(bytes.unwrap_or_default());
}

fn take(record: &mut &[u8]) -> Option<Option<Vec<u8>>> {
    let (len, rest) = record.split_first_chunk()?;
    let len = u32::from_le_bytes(*len);
    if len == ABSENT {
        *record = rest;
        return Some(None);
    }
    let (bytes, rest) = rest.split_at_checked(len as usize)?;
    *record = rest;
    Some(Some(bytes.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_half_of_one_does_not() {
        let changes = Changes::from([(b"a".to_vec(), Some(b"1".to_vec())), (b"b".to_vec(), None)]);
        for gone in [None, Some(KeyRange { from: b"x".to_vec(), to: b"y".to_vec() })] {
            let record = encode(&changes, gone.as_ref());
            assert_eq!(decode(&record), Some((changes.clone(), gone)));
            assert_eq!(decode(&record[..record.len() - 1]), None);
            assert_eq!(decode_cancel(&record), None);
        }
        assert_eq!(decode_cancel(&encode_cancel(7)), Some(7));
    }

    /// A record that a disk has damaged is refused, or read as one that is written back as it was read.
    #[test]
    fn damaged_records_are_refused_or_read_whole() {
        let changes = Changes::from([(b"key".to_vec(), Some(b"row".to_vec())), (b"other".to_vec(), None)]);
        let gone = KeyRange { from: b"x".to_vec(), to: b"y".to_vec() };
        let records = [encode(&changes, Some(&gone)), encode(&changes, None), encode_cancel(7), Vec::new()];
        let entropy = store::Entropy::new(7);
        let (mut read, mut refused) = (0, 0);
        for _ in 0..200_000 {
            let mut record = records[entropy.below(4) as usize].clone();
            for _ in 0..1 + entropy.below(4) {
                let at = entropy.below(record.len() as u64 + 1) as usize;
                match entropy.below(3) {
                    0 => record.truncate(at),
                    1 => record.insert(at, entropy.next_u64() as u8),
                    _ => record.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << entropy.below(8)),
                }
            }
            assert!(decode_cancel(&record).is_none() || decode(&record).is_some());
            match decode(&record) {
                Some((changes, gone)) => {
                    assert_eq!(decode(&encode(&changes, gone.as_ref())), Some((changes, gone)));
                    read += 1;
                }
                None => refused += 1,
            }
        }
        assert!(read > 1000 && refused > 1000, "{read} read, {refused} refused");
    }
}
