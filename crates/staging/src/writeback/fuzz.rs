//! Fuzzing of the write-back log.

use super::log_record;
use super::scan::{ScanEvent, scan};

/// Checks that a header that decodes is encoded so that it decodes to the same record, and reads a segment with any
/// damage. Every frame's checksum is made valid first, so that damage reaches the code behind it.
pub fn write_back_log(bytes: &[u8]) {
    if let Some(found) = log_record::decode(bytes) {
        let written = log_record::encode(&found, &[]);
        assert_eq!(log_record::decode(&written[log_record::HEAD_V2_BYTES..]).as_ref(), Some(&found));
        let mut frame = log_record::encode(&found, &[bytes]);
        log_record::set_position(&mut frame, 1, 0);
        segment(&[&frame, bytes].concat());
    }
    segment(bytes);
}

/// Reads a log of one segment, and checks that the records found lie inside it.
fn segment(bytes: &[u8]) {
    let read = || -> std::io::Result<()> {
        let dir = std::env::temp_dir().join(format!("tenon-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join(format!("{:016x}.log", 1)), bytes)?;
        let (mut end, mut count) = (0, 0);
        let each = |event: ScanEvent| {
            let range = match event {
                ScanEvent::Record(found) => found.body,
                ScanEvent::Damaged(damage) => damage.range,
            };
            assert!(range.start >= end && range.end <= bytes.len() as u64);
            (end, count) = (range.end, count + 1);
            Ok(())
        };
        if let Ok(scanned) = scan(&dir, each) {
            assert_eq!(scanned.segments.len(), 1);
        }
        assert!(count <= bytes.len() / log_record::HEAD_V1_BYTES + 1);
        Ok(())
    };
    read().unwrap_or_else(|error| panic!("the target's own directory: {error}"));
}
