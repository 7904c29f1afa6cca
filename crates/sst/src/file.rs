//! Tables in files.

use crate::{Cache, Options, Result, Source, Summary, Table, Writer};
use bytes::Bytes;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Length of the writes to a new file.
const WRITE_BYTES: usize = 1 << 20;

/// A table in a file.
pub type FileTable = Table<TableFile>;

/// An open file with a table.
#[derive(Debug)]
pub struct TableFile {
    file: File,
    path: PathBuf,
    len_bytes: u64,
    is_obsolete: AtomicBool,
}

impl FileTable {
    /// Opens the table in a file; see [`Table::open`].
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) if the file is not a table, and [`Error::Io`](crate::Error::Io).
    pub fn open_file(path: PathBuf, id: u64, cache: &Arc<Cache>) -> Result<Arc<Self>> {
        let file = File::open(&path)?;
        let len_bytes = file.metadata()?.len();
        let source = TableFile { file, path, len_bytes, is_obsolete: AtomicBool::new(false) };
        Ok(Arc::new(Self::open(source, id, cache.clone())?))
    }

    /// Lets the file be deleted once nothing reads the table.
    pub fn mark_obsolete(&self) {
        self.source().is_obsolete.store(true, Ordering::Release);
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        if self.is_obsolete.load(Ordering::Acquire) {
            // A file that stays is deleted when its directory is opened again.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Source for TableFile {
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
pub struct NewTableFile {
    writer: Writer<BufWriter<File>>,
    path: UnfinishedPath,
}

/// Path of an unfinished file, which is deleted on drop; `None` once the file is finished.
struct UnfinishedPath(Option<PathBuf>);

impl Drop for UnfinishedPath {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

impl fmt::Debug for NewTableFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewTableFile").field("path", &self.path.0).finish_non_exhaustive()
    }
}

impl NewTableFile {
    /// Creates a table file, or replaces one.
    ///
    /// # Errors
    ///
    /// The file cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        let sink = BufWriter::with_capacity(WRITE_BYTES, File::create(path)?);
        let writer = Writer::new(sink, Options::default());
        Ok(Self { writer, path: UnfinishedPath(Some(path.to_owned())) })
    }

    /// Adds an entry; see [`Writer::add`].
    ///
    /// # Errors
    ///
    /// As for [`Writer::add`].
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.writer.add(key, value)
    }

    /// Writes the end of the table. Returns the file, which the caller makes durable.
    ///
    /// # Errors
    ///
    /// As for [`Writer::finish`].
    pub fn finish(mut self) -> Result<(File, Summary)> {
        let (mut sink, summary) = self.writer.finish()?;
        sink.flush()?;
        let file = sink.into_inner().map_err(io::IntoInnerError::into_error)?;
        self.path.0 = None;
        Ok((file, summary))
    }
}
