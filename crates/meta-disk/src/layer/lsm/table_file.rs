//! Table files: sorted tables in a directory, named by number.

use bytes::Bytes;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) type FileTable = sst::Table<TableFile>;

const WRITE_BYTES: usize = 1 << 20;

/// An open table file. It is deleted when its last reader is dropped, if no manifest names it.
#[derive(Debug)]
pub(super) struct TableFile {
    file: File,
    path: PathBuf,
    number: u64,
    len_bytes: u64,
    cache: Arc<sst::Cache>,
    is_obsolete: AtomicBool,
}

impl TableFile {
    /// Opens the table with a number. Its file must have the given length.
    pub(super) fn open(
        dir: &Path,
        number: u64,
        len_bytes: u64,
        cache: &Arc<sst::Cache>,
    ) -> sst::Result<Arc<FileTable>> {
        let path = path_of(dir, number);
        let file = File::open(&path)?;
        if file.metadata()?.len() != len_bytes {
            return Err(sst::Error::Corrupt {
                what: "the file has another length than the manifest says",
                at: 0,
            });
        }
        let source =
            Self { file, path, number, len_bytes, cache: cache.clone(), is_obsolete: AtomicBool::new(false) };
        Ok(Arc::new(sst::Table::open(source, number, cache.clone())?))
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Lets the file be deleted once nothing reads it. No manifest names it any longer.
    pub(super) fn mark_obsolete(&self) {
        self.is_obsolete.store(true, Ordering::Release);
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        if self.is_obsolete.load(Ordering::Acquire) {
            self.cache.forget(self.number);
            if let Err(error) = fs::remove_file(&self.path) {
                tracing::warn!(
                    "the obsolete table file '{}' could not be deleted: {error}",
                    self.path.display()
                );
            }
        }
    }
}

impl sst::Source for TableFile {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_at(&self, at: u64, len: usize) -> io::Result<Bytes> {
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes.into())
    }
}

/// A table file that is being written. It is deleted unless it is finished.
pub(super) struct NewTable {
    writer: sst::Writer<BufWriter<File>>,
    file: File,
    path: UnfinishedPath,
    number: u64,
}

/// Deletes an unfinished file.
struct UnfinishedPath(Option<PathBuf>);

impl Drop for UnfinishedPath {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

impl NewTable {
    pub(super) fn create(dir: &Path, number: u64) -> io::Result<Self> {
        let path = path_of(dir, number);
        let file = File::create(&path)?;
        let sink = BufWriter::with_capacity(WRITE_BYTES, file.try_clone()?);
        let writer = sst::Writer::new(sink, sst::Options::default());
        Ok(Self { writer, file, path: UnfinishedPath(Some(path)), number })
    }

    /// Adds a row; keys ascend.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) -> sst::Result<()> {
        self.writer.add(key, value)
    }

    /// Makes the table durable, except for its name in the directory, and opens it. Returns `None` if it has no entries.
    pub(super) fn finish(
        mut self,
        dir: &Path,
        cache: &Arc<sst::Cache>,
    ) -> sst::Result<Option<Arc<FileTable>>> {
        let (mut sink, summary) = self.writer.finish()?;
        sink.flush()?;
        self.file.sync_all()?;
        if summary.entries == 0 {
            return Ok(None);
        }
        let table = TableFile::open(dir, self.number, summary.len_bytes, cache)?;
        self.path.0 = None;
        Ok(Some(table))
    }
}

/// Returns the path of the table file with a number.
fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.sst"))
}

/// Deletes the table files that no manifest names: those of an interrupted flush or merge.
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
