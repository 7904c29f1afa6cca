//! Fuzzing of the write-back log.

use super::log_record;

/// Checks that a header that decodes is encoded so that it decodes to the same record, and reads a segment with any
/// damage. Every frame's checksum is made valid first, so that damage reaches the code behind it.
pub fn write_back_log(bytes: &[u8]) {
    if let Some(record) = log_record::decode(bytes) {
        let header = log_record::encode(&record);
        assert_eq!(log_record::decode(&header).as_ref(), Some(&record));
        log::fuzz::segment(&[&log::fuzz::first_frame(&header, bytes), bytes].concat());
    }
    log::fuzz::segment(bytes);
}
