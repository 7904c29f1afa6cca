//! The record of a file, as somebody else may have written it.

use super::record::Record;

/// A record that is read is written as one that is read as the same.
pub fn file_record(bytes: &[u8]) {
    if let Some(record) = Record::decode(bytes) {
        assert_eq!(Record::decode(&record.encode()).as_ref(), Some(&record));
    }
}
