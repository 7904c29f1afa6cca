//! Writes dump files.

use super::record::Record;
use super::{End, FORMAT, Header, VERSION};
use crate::identity_record::copied;
use crate::{About, Result};
use log::Crc;
use meta::Reader;
use serde::Serialize;
use std::io::Write;
use std::ops::Bound;
use store::Timestamp;

/// Records read from the engine at a time.
const PAGE_RECORDS: usize = 4096;

/// Compression level: a dump is kept longer than a backup, and made rarely.
const LEVEL: i32 = 3;

/// Writes all records of a snapshot. `on_progress` is called with the number of records written so far. Returns the number of
/// records.
pub fn write(
    snapshot: &dyn Reader,
    about: About,
    made_at: Timestamp,
    sink: impl Write,
    mut on_progress: impl FnMut(u64),
) -> Result<u64> {
    let mut lines =
        LineWriter { sink: zstd::Encoder::new(sink, LEVEL)?, crc: Crc::default(), line: Vec::new() };
    lines.sink.include_checksum(true)?;
    lines.write(&Header { format: FORMAT.into(), version: VERSION, about, made_at: made_at.0 })?;
    let mut records = 0;
    let mut from = Bound::Unbounded;
    loop {
        let rows = snapshot.scan(from.as_ref().map(Vec::as_slice), Bound::Unbounded, PAGE_RECORDS)?;
        let Some((last, _)) = rows.last() else { break };
        for (key, value) in copied(&rows) {
            lines.write(&Record::of(key, value)?)?;
            records += 1;
        }
        on_progress(records);
        from = Bound::Excluded(last.clone());
    }
    let crc32c = lines.crc.sum();
    lines.write(&End { end: records, crc32c })?;
    lines.sink.finish()?.flush()?;
    Ok(records)
}

struct LineWriter<'w, W: Write> {
    sink: zstd::Encoder<'w, W>,
    crc: Crc,
    line: Vec<u8>,
}

impl<W: Write> LineWriter<'_, W> {
    fn write(&mut self, value: &impl Serialize) -> Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, value).map_err(std::io::Error::from)?;
        self.line.push(b'\n');
        self.crc.add(&self.line);
        Ok(self.sink.write_all(&self.line)?)
    }
}
