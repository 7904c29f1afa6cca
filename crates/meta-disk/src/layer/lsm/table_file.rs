//! Table files: sorted tables in a directory, named by number.

use sst::{FileTable, NewTableFile, Source};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens the table with a number. Its file must have the given length.
pub(super) fn open(
    dir: &Path,
    number: u64,
    len_bytes: u64,
    cache: &Arc<sst::Cache>,
) -> sst::Result<Arc<FileTable>> {
    let path = path_of(dir, number);
    if fs::metadata(&path)?.len() != len_bytes {
        return Err(sst::Error::Corrupt {
            what: "the file has another length than the manifest says",
            at: 0,
        });
    }
    FileTable::open_file(path, number, cache)
}

/// Returns the number and the length of a table, for the manifest.
pub(super) fn name_of(table: &FileTable) -> (u64, u64) {
    (table.id(), table.source().len_bytes())
}

/// A table, and its file, whose bytes are not durable yet.
pub(super) type Unsynced = (Arc<FileTable>, File);

/// A table file that is being written. It is deleted unless it is finished.
pub(super) struct NewTable {
    file: NewTableFile,
    number: u64,
}

impl NewTable {
    pub(super) fn create(dir: &Path, number: u64) -> io::Result<Self> {
        Ok(Self { file: NewTableFile::create(&path_of(dir, number))?, number })
    }

    /// Adds a row, whose key must be greater than that of the last one.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) -> sst::Result<()> {
        self.file.add(key, value)
    }

    /// Makes the table durable, except for its name in the directory, and opens it. Returns `None` if it has no entries.
    pub(super) fn finish(self, dir: &Path, cache: &Arc<sst::Cache>) -> sst::Result<Option<Arc<FileTable>>> {
        let Some((table, file)) = self.finish_unsynced(dir, cache)? else { return Ok(None) };
        file.sync_all()?;
        Ok(Some(table))
    }

    /// Like [`finish`](Self::finish), except that the bytes are not durable yet. Returns also the file, for the caller to sync.
    pub(super) fn finish_unsynced(
        self,
        dir: &Path,
        cache: &Arc<sst::Cache>,
    ) -> sst::Result<Option<Unsynced>> {
        let (file, summary) = self.file.finish()?;
        if summary.entries == 0 {
            fs::remove_file(path_of(dir, self.number))?;
            return Ok(None);
        }
        let table = open(dir, self.number, summary.len_bytes, cache)?;
        Ok(Some((table, file)))
    }
}

/// Returns the path of the table file with a number.
fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.sst"))
}

/// Deletes the table files that the manifest does not name: those of an interrupted flush, merge or run.
pub(super) fn delete_unnamed(dir: &Path, named: &[u64]) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let is_named = |number: &u64| path == path_of(dir, *number);
        if path.extension().is_some_and(|ending| ending == "sst") && !named.iter().any(is_named) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
