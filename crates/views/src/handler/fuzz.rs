//! Fuzz target for the handler's files, as a damaged disk or a hostile writer may have left them.

use super::frames::{FileName, FrameWriter};
use super::objects::LogRecord;
use super::saved_state::fuzz_saved_state;
use crate::object_record::{ObjectRecord, key_of};
use std::fs;
use std::io;

/// Reads the bytes as a log file, and as the records of a frame with a valid checksum.
pub fn state(bytes: &[u8]) {
    for record in LogRecord::read_all(bytes).unwrap_or_default() {
        let mut written = Vec::new();
        record.append(&mut written);
        assert_eq!(LogRecord::read_all(&written), Some(vec![record]));
        let _key = key_of(record.body);
        let _object = ObjectRecord::read(record.body);
    }
    let dir = std::env::temp_dir().join(format!("tenon-fuzz-views-{}", std::process::id()));
    let path = FileName::Log(0).path(&dir);
    let tried = fs::create_dir_all(&dir).and_then(|()| {
        fs::write(&path, bytes)?;
        fuzz_saved_state(&dir)?;
        let mut log = FrameWriter::create(&path, 1)?;
        log.frame().extend_from_slice(bytes);
        log.write()?;
        fuzz_saved_state(&dir)
    });
    tried.unwrap_or_else(|error: io::Error| panic!("cannot use the fuzz target's directory: {error}"));
}
