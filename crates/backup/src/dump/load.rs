//! Reads dump files, and fills engines from them.

use super::record::Record;
use super::{End, FORMAT, Header, VERSION};
use crate::fill::Fill;
use crate::identity_record::copied;
use crate::{Error, Result};
use log::Crc;
use meta::{Engine, Reader};
use serde::Deserialize;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::ops::Bound;

/// Maximum length of a line. A record with an extended attribute of 64 KiB, or a link target, is far shorter.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Records read from an engine at a time.
const PAGE_RECORDS: usize = 4096;

/// A dump file that is being read.
pub struct DumpReader<'r, R: Read> {
    source: BufReader<zstd::Decoder<'r, BufReader<R>>>,
    line: Vec<u8>,
    /// Number of `line` in the file, from 1.
    number: u64,
    /// Records read so far.
    records: u64,
    crc: Crc,
    header: Header,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    End(End),
    Record(Record),
}

impl<R: Read> fmt::Debug for DumpReader<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DumpReader").field("header", &self.header).finish_non_exhaustive()
    }
}

impl<R: Read> DumpReader<'_, R> {
    /// Begins to read a file: reads its first line.
    ///
    /// # Errors
    /// [`Error::Dump`] if it is not the first line of a dump of this version.
    pub fn open(source: R) -> Result<Self> {
        let source = BufReader::new(zstd::Decoder::new(source)?);
        let header = Header { format: String::new(), version: 0, about: crate::About::default(), made_at: 0 };
        let mut reader =
            Self { source, line: Vec::new(), number: 0, records: 0, crc: Crc::default(), header };
        let not_a_dump = |_| Error::Dump { line: 1, what: "is not that of a dump of a Tenon volume".into() };
        reader.next_line().map_err(not_a_dump)?;
        let version = serde_json::from_slice::<serde_json::Value>(&reader.line).unwrap_or_default();
        match (version["format"].as_str(), version["version"].as_u64()) {
            (Some(FORMAT), Some(version)) if version == u64::from(VERSION) => {}
            (Some(FORMAT), Some(version)) => {
                return Err(reader.unusable(format!("has version {version}; use a newer Tenon")));
            }
            _ => return Err(not_a_dump(reader.unusable(""))),
        }
        reader.header = serde_json::from_slice(&reader.line)
            .map_err(|error| reader.unusable(format!("is not a header: {error}")))?;
        reader.crc.add(&reader.line);
        Ok(reader)
    }

    /// Returns the first line.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the number of records that were read.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the next record, as key and value; `None` after the last record of a complete file.
    ///
    /// # Errors
    /// [`Error::Dump`] if the file is damaged, cut off or followed by other bytes.
    pub fn next_row(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.next_line()?;
        let line = serde_json::from_slice(&self.line);
        match line.map_err(|error| self.unusable(format!("is not a record: {error}")))? {
            Line::Record(record) => {
                let row = record.into_row().map_err(|error| self.unusable(format!("is invalid: {error}")))?;
                self.crc.add(&self.line);
                self.records += 1;
                Ok(Some(row))
            }
            Line::End(End { end, crc32c }) if end == self.records && crc32c == self.crc.sum() => {
                match self.source.fill_buf()?.is_empty() {
                    true => Ok(None),
                    false => Err(self.unusable("is followed by other lines")),
                }
            }
            Line::End(_) => Err(self.unusable("states another number of records, or another checksum")),
        }
    }

    /// Reads the next line, with its end, into `line`.
    fn next_line(&mut self) -> Result<()> {
        self.line.clear();
        self.number += 1;
        let read = Read::by_ref(&mut self.source).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line);
        match read {
            Ok(_) if self.line.ends_with(b"\n") => Ok(()),
            Ok(_) => Err(self.unusable("is cut off")),
            Err(error) if is_of_storage(&error) => Err(error.into()),
            Err(error) => Err(self.unusable(format!("is damaged: {error}"))),
        }
    }

    fn unusable(&self, what: impl Into<String>) -> Error {
        Error::Dump { line: self.number, what: what.into() }
    }
}

/// Returns whether an error comes from the disk, and not from the decompression of damaged bytes.
fn is_of_storage(error: &std::io::Error) -> bool {
    error.raw_os_error().is_some()
}

/// Fills an engine, which must be empty, with all records of a dump. An engine on disk has all of them afterwards, or none. A remote engine may
/// have some of them after a failure, so the caller has to mark it. `on_progress` is called with the number of records read so far, after each
/// thousand. Returns the number of records.
pub fn load<R: Read>(
    engine: &dyn Engine,
    dump: &mut DumpReader<'_, R>,
    mut on_progress: impl FnMut(u64),
) -> Result<u64> {
    let mut fill = Fill::begin(engine)?;
    while let Some((key, value)) = dump.next_row()? {
        fill.put(&key, &value).map_err(|error| match error {
            Error::Inconsistent(what) => dump.unusable(format!("cannot be loaded: {what}")),
            other => other,
        })?;
        if fill.records.is_multiple_of(1000) {
            on_progress(fill.records);
        }
    }
    let records = fill.finish()?;
    engine.sync()?;
    Ok(records)
}

/// Returns whether an engine has exactly the records of a dump.
///
/// # Errors
/// [`Error::Dump`] if the file is damaged before the first difference.
pub fn has_records_of<R: Read>(reader: &dyn Reader, dump: &mut DumpReader<'_, R>) -> Result<bool> {
    let mut from = Bound::Unbounded;
    loop {
        let page = reader.scan(from.as_ref().map(Vec::as_slice), Bound::Unbounded, PAGE_RECORDS)?;
        let Some((last, _)) = page.last() else { return Ok(dump.next_row()?.is_none()) };
        from = Bound::Excluded(last.clone());
        for (key, value) in copied(&page) {
            match dump.next_row()? {
                Some((dumped_key, dumped)) if dumped_key == key && *dumped == **value => {}
                _ => return Ok(false),
            }
        }
    }
}
