//! A write-ahead journal that the engine's user provides.
//!
//! With a journal, the table layer's own write-ahead log is off: the changes of a group are first appended to the
//! journal, and table files are written only after the journal records with their changes are durable. So after a loss
//! of power at any moment, no metadata is durable before data that was appended to the same journal earlier.

use crate::row::Changes;
use meta::KeyRange;
use std::fmt;
use std::io;

/// A journal. Keeps records in the order of their numbers. A record survives a crash of the process once `append` has returned.
pub trait Journal: Send + Sync + fmt::Debug {
    /// Appends a record. Its number is higher than the numbers of all earlier records.
    fn append(&self, number: u64, record: Vec<u8>) -> io::Result<()>;

    /// Returns once all appended records survive a loss of power.
    fn sync(&self) -> io::Result<()>;

    /// Drops the records up to and including this number, which are no longer needed: the tables with their changes are durable.
    fn forget(&self, up_to: u64) -> io::Result<()>;
}

/// Records with their numbers, ascending.
pub type Records = Vec<(u64, Vec<u8>)>;

/// Encodes changes and a removed range as a record.
pub(crate) fn encode(changes: &Changes, removed_range: Option<&KeyRange>) -> Vec<u8> {
    let mut record = Vec::new();
    put(&mut record, removed_range.map(|range| range.from.as_slice()));
    put(&mut record, removed_range.map(|range| range.to.as_slice()));
    for (key, row) in changes {
        put(&mut record, Some(key));
        put(&mut record, row.as_deref());
    }
    record
}

/// Encodes a record that cancels an earlier record whose changes were not written to the tables.
///
/// A cancellation is a record without changes whose removed range has an end but no start. The end is the number of the cancelled
/// record, 8 bytes, big-endian.
pub(crate) fn encode_cancel(number: u64) -> Vec<u8> {
    let mut record = Vec::new();
    put(&mut record, None);
    put(&mut record, Some(&number.to_be_bytes()));
    record
}

/// Decodes a cancellation and returns the number of the cancelled record; `None` if the record is not a cancellation.
pub(crate) fn decode_cancel(mut record: &[u8]) -> Option<u64> {
    let (None, Some(number)) = (take(&mut record)?, take(&mut record)?) else { return None };
    let number = u64::from_be_bytes(number.try_into().ok()?);
    record.is_empty().then_some(number)
}

/// Decodes the changes and the removed range of a record; `None` if the record is damaged.
pub(crate) fn decode(mut record: &[u8]) -> Option<(Changes, Option<KeyRange>)> {
    let (from, to) = (take(&mut record)?, take(&mut record)?);
    let removed_range = from.zip(to).map(|(from, to)| KeyRange { from, to });
    let mut changes = Changes::new();
    while !record.is_empty() {
        let key = take(&mut record)??;
        changes.insert(key, take(&mut record)?);
    }
    Some((changes, removed_range))
}

/// The length that marks absent bytes. No bytes have this length.
const ABSENT: u32 = u32::MAX;

/// Appends bytes with their length to a record, or a mark for absent ones.
fn put(record: &mut Vec<u8>, bytes: Option<&[u8]>) {
    let len = bytes.map_or(ABSENT, |bytes| bytes.len() as u32);
    record.extend(len.to_le_bytes());
    record.extend(bytes.unwrap_or_default());
}

/// Takes what [`put`] has appended off the front of a record; the outer `None` if the record is damaged.
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
    fn records_round_trip_and_truncated_records_are_rejected() {
        let changes = Changes::from([(b"a".to_vec(), Some(b"1".to_vec())), (b"b".to_vec(), None)]);
        for removed_range in [None, Some(KeyRange { from: b"x".to_vec(), to: b"y".to_vec() })] {
            let record = encode(&changes, removed_range.as_ref());
            assert_eq!(decode(&record), Some((changes.clone(), removed_range)));
            assert_eq!(decode(&record[..record.len() - 1]), None);
            assert_eq!(decode_cancel(&record), None);
        }
        assert_eq!(decode_cancel(&encode_cancel(7)), Some(7));
    }

    /// Decoding a damaged record fails, or gives changes that round-trip.
    #[test]
    fn damaged_records_are_rejected_or_decoded_completely() {
        let changes = Changes::from([(b"key".to_vec(), Some(b"row".to_vec())), (b"other".to_vec(), None)]);
        let removed_range = KeyRange { from: b"x".to_vec(), to: b"y".to_vec() };
        let records =
            [encode(&changes, Some(&removed_range)), encode(&changes, None), encode_cancel(7), Vec::new()];
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
                Some((changes, removed_range)) => {
                    assert_eq!(
                        decode(&encode(&changes, removed_range.as_ref())),
                        Some((changes, removed_range))
                    );
                    read += 1;
                }
                None => refused += 1,
            }
        }
        assert!(read > 1000 && refused > 1000, "{read} read, {refused} refused");
    }
}
