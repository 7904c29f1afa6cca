//! The write-back log, as a damaged disk or somebody else may have left it.

use super::log::{self, Found};
use super::record;

/// A header that is read is written as one that is read as the same; a segment is read to its first damage, with every frame's
/// checksum made right, so that damage reaches what comes behind it.
pub fn write_back_log(bytes: &[u8]) {
    if let Some(found) = record::decode(bytes) {
        let written = record::encode(&found, &[]);
        assert_eq!(record::decode(&written[record::FRAME_BYTES..]).as_ref(), Some(&found));
        segment(&record::encode(&found, &[bytes]));
    }
    segment(bytes);
}

/// A log of one segment; records that are found lie inside it.
fn segment(bytes: &[u8]) {
    let read = || -> std::io::Result<()> {
        let dir = std::env::temp_dir().join(format!("tenon-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join(format!("{:016x}.log", 1)), bytes)?;
        let (mut end, mut count) = (0, 0);
        let each = |found: Found| {
            assert!(found.body.start > end && found.body.end <= bytes.len() as u64);
            (end, count) = (found.body.end, count + 1);
            Ok(())
        };
        if let Ok((segments, broken_at)) = log::scan(&dir, each) {
            assert_eq!((segments.len(), broken_at.unwrap_or(bytes.len() as u64)), (1, end));
        }
        assert!(count <= bytes.len() / record::FRAME_BYTES);
        Ok(())
    };
    read().unwrap_or_else(|error| panic!("the target's own directory: {error}"));
}
