//! Sorted tables in files.

use bytes::Bytes;
use meta::EngineError;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) type FileTable = sst::Table<TableFile>;

const WRITE_BYTES: usize = 1 << 20;

/// An open table file.
#[derive(Debug)]
pub(crate) struct TableFile {
    file: File,
    len_bytes: u64,
    /// The path of a temporary file, which is deleted when this is dropped.
    temporary: Option<PathBuf>,
}

impl TableFile {
    /// Opens a table file. `id` distinguishes it in the cache.
    pub(crate) fn open(path: &Path, id: u64, cache: &Arc<sst::Cache>) -> sst::Result<Arc<FileTable>> {
        let file = File::open(path)?;
        let len_bytes = file.metadata()?.len();
        let source = Self { file, len_bytes, temporary: None };
        Ok(Arc::new(sst::Table::open(source, id, cache.clone())?))
    }

    /// Opens a table file that is deleted when the table is dropped.
    pub(crate) fn open_temporary(
        path: PathBuf,
        id: u64,
        cache: &Arc<sst::Cache>,
    ) -> sst::Result<Arc<FileTable>> {
        let file = File::open(&path)?;
        let len_bytes = file.metadata()?.len();
        let source = Self { file, len_bytes, temporary: Some(path) };
        Ok(Arc::new(sst::Table::open(source, id, cache.clone())?))
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        if let Some(path) = &self.temporary {
            let _ = fs::remove_file(path);
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

/// A table file that is being written.
pub(crate) struct NewTableFile {
    writer: sst::Writer<BufWriter<File>>,
}

impl NewTableFile {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let sink = BufWriter::with_capacity(WRITE_BYTES, File::create(path)?);
        Ok(Self { writer: sst::Writer::new(sink, sst::Options::default()) })
    }

    /// Adds an entry. Keys ascend.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> sst::Result<()> {
        self.writer.add(key, value)
    }

    /// Writes the end of the table and returns its file.
    pub(crate) fn finish(self) -> sst::Result<File> {
        let (mut sink, _) = self.writer.finish()?;
        sink.flush()?;
        Ok(sink.into_inner().map_err(io::IntoInnerError::into_error)?)
    }
}

/// Converts an error of a table.
pub(crate) fn table_error(error: sst::Error) -> EngineError {
    match error {
        sst::Error::Io(error) => io_error(&error),
        error @ sst::Error::Corrupt { .. } => EngineError::Corrupt(error.to_string()),
        error => EngineError::Unavailable(error.to_string()),
    }
}

pub(crate) fn io_error(error: &io::Error) -> EngineError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => EngineError::Full(error.to_string()),
        _ => EngineError::Unavailable(error.to_string()),
    }
}
