//! Fuzz target: decoding the record of a file, which another program may have written.

use super::record::Record;

/// Checks that a decoded record survives encoding and decoding.
pub fn file_record(bytes: &[u8]) {
    if let Some(record) = Record::decode(bytes) {
        assert_eq!(Record::decode(&record.encode()).as_ref(), Some(&record));
    }
}
