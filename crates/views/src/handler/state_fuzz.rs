//! The handler's files, as a damaged disk or a hostile writer may have left them.

use super::change_log::Record;
use super::frames::{Name, Writer};
use super::object_record::{Known, key_of};
use super::restore;
use std::fs;
use std::io;

/// Bytes as a log as they are, and as the records of a frame with a right checksum.
pub fn state(bytes: &[u8]) {
    for record in Record::all(bytes).unwrap_or_default() {
        let mut written = Vec::new();
        record.append(&mut written);
        assert_eq!(Record::all(&written), Some(vec![record]));
        let _key = key_of(record.body);
        let _object = Known::read(record.body);
    }
    let dir = std::env::temp_dir().join(format!("tenon-fuzz-views-{}", std::process::id()));
    let path = Name::Log(0).path(&dir);
    let tried = fs::create_dir_all(&dir).and_then(|()| {
        fs::write(&path, bytes)?;
        restore::fuzz_survey(&dir)?;
        let mut log = Writer::create(&path, 1)?;
        log.frame().extend_from_slice(bytes);
        log.write()?;
        restore::fuzz_survey(&dir)
    });
    tried.unwrap_or_else(|error: io::Error| panic!("the target's own directory: {error}"));
}
