//! Fuzz targets, run by the crate `fuzz` and by the owners of logs: no damage causes a panic, and what is found lies
//! inside the file.

use crate::file_log::{self, FileLogFormat};
use crate::segmented::{self, ScanEvent};
use crate::sync_mark::SyncMark;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

/// Returns a valid first frame of the segment 1.
pub fn first_frame(header: &[u8], body: &[u8]) -> Vec<u8> {
    segmented::first_frame_for_fuzzing(header, body)
}

/// Reads a log of one segment, and checks that the records found lie inside it.
pub fn segment(bytes: &[u8]) {
    let read = || -> io::Result<()> {
        let dir = dir()?;
        fs::write(dir.join(format!("{:016x}.log", 1)), bytes)?;
        let (mut end, mut count) = (0, 0);
        let each = |event: ScanEvent| {
            let range = match event {
                ScanEvent::Entry(entry) => entry.body,
                ScanEvent::Damaged(damage) => damage.range,
            };
            assert!(range.start >= end && range.end <= bytes.len() as u64);
            (end, count) = (range.end, count + 1);
            Ok(())
        };
        if let Ok(segments) = segmented::scan(&dir, each) {
            assert_eq!(segments.len(), 1);
        }
        assert!(count <= bytes.len() / segmented::FRAME_BYTES_MIN + 1);
        Ok(())
    };
    read().unwrap_or_else(|error| panic!("the target's own directory: {error}"));
}

/// Reads a log in one file without a mark, and checks that what is found lies inside it. Returns the records; `None`
/// if the log cannot be opened.
pub fn file<T>(bytes: &[u8], format: FileLogFormat, decode: impl Fn(&[u8]) -> Option<T>) -> Option<Vec<T>> {
    let read = || -> io::Result<File> {
        let path = dir()?.join("log");
        fs::write(&path, bytes)?;
        File::open(path)
    };
    let file = read().unwrap_or_else(|error| panic!("the target's own directory: {error}"));
    let scanned = file_log::scan(&file, &format, SyncMark::UNKNOWN, decode).ok()?;
    let ranges = scanned.damaged.iter().map(|range| range.end).chain([scanned.end]);
    assert!(bytes.len() < format.header.len() || ranges.max() <= Some(bytes.len() as u64));
    Some(scanned.records)
}

fn dir() -> io::Result<PathBuf> {
    let dir = std::env::temp_dir().join(format!("tenon-fuzz-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    Ok(dir)
}
