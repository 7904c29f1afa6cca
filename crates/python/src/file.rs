//! Open files: reads and writes at positions. Python's file object keeps the position and buffers.

use crate::content::Content;
use crate::failure::{Failure, Result};
use crate::paths::{self, Node};
use crate::runtime::{run, wait, wait_borrowing};
use crate::tree;
use bytes::Bytes;
use pyo3::buffer::PyBuffer;
use pyo3::{Py, PyAny, PyResult, Python, pyclass, pymethods};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vfs::{Changes, Filesystem, Handle};

/// Permission bits of new files, before the umask.
pub(crate) const FILE_MODE: u16 = 0o666;

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    fs: Arc<Filesystem>,
    node: Node,
    handle: Handle,
    /// The length as this handle has seen it.
    size_bytes: AtomicU64,
    is_closed: AtomicBool,
}

/// Opens a file; with `O_CREAT`, creates it and the directories above if it is missing.
pub(crate) async fn open(fs: &Arc<Filesystem>, path: &[u8], flags: i32, mode: u16) -> Result<OpenFile> {
    let opened = open_or_create(fs, path, flags, mode).await;
    opened.map_err(|failure| failure.at(path))
}

async fn open_or_create(fs: &Arc<Filesystem>, path: &[u8], flags: i32, mode: u16) -> Result<OpenFile> {
    let (node, opened) = match paths::open(fs, path, flags, mode).await {
        Err(failure) if failure.errno() == libc::ENOENT && flags & libc::O_CREAT != 0 => {
            tree::make_directories(fs, paths::split(path).0, tree::DIRECTORY_MODE).await?;
            paths::open(fs, path, flags, mode).await?
        }
        outcome => outcome?,
    };
    let open = OpenFile::new(fs, node, opened.handle);
    if opened.was_replaced || flags & libc::O_TRUNC != 0 {
        open.refresh().await?;
    }
    Ok(open)
}

impl OpenFile {
    fn new(fs: &Arc<Filesystem>, node: Node, handle: Handle) -> Self {
        let size_bytes = AtomicU64::new(node.attr.size_bytes);
        Self { fs: fs.clone(), node, handle, size_bytes, is_closed: AtomicBool::new(false) }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    async fn refresh(&self) -> Result<u64> {
        let attr = self.fs.getattr(self.node.ino()).await?;
        self.size_bytes.store(attr.size_bytes, Ordering::Relaxed);
        Ok(attr.size_bytes)
    }

    pub(crate) async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        Ok(self.fs.read(self.handle, offset, len).await?)
    }

    pub(crate) async fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        match self.fs.write_now(self.handle, offset, data) {
            Some(written) => written?,
            None => self.fs.write(self.handle, offset, data).await?,
        }
        self.size_bytes.fetch_max(offset + data.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    async fn append(&self, data: &[u8]) -> Result<()> {
        self.fs.append(self.handle, self.size_bytes(), data).await?;
        self.refresh().await.map(drop)
    }

    pub(crate) async fn flush(&self) -> Result<()> {
        Ok(self.fs.flush(self.handle).await?)
    }

    async fn truncate(&self, size_bytes: u64) -> Result<()> {
        let changes = Changes { size_bytes: Some(size_bytes), ..Changes::default() };
        self.fs.setattr(tree::caller(), self.node.ino(), changes, Some(self.handle)).await?;
        self.size_bytes.store(size_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Closes the file. Does nothing if it is closed.
    pub(crate) async fn close(&self) -> Result<()> {
        match self.is_closed.swap(true, Ordering::Relaxed) {
            true => Ok(()),
            false => Ok(self.fs.release(self.handle).await?),
        }
    }
}

/// An open file of a volume. Positions and lengths are in bytes.
#[derive(Debug)]
#[pyclass(frozen, module = "tenon._native")]
pub(crate) struct File {
    open: Arc<OpenFile>,
    path: Vec<u8>,
}

impl File {
    pub(crate) fn new(open: OpenFile, path: Vec<u8>) -> Self {
        Self { open: Arc::new(open), path }
    }

    fn failed(&self) -> impl Fn(Failure) -> Failure + Send + 'static {
        let path = self.path.clone();
        move |failure| failure.at(&path)
    }
}

#[pymethods]
impl File {
    /// Returns up to `length` bytes at `offset`; fewer only at the end of the file.
    #[pyo3(signature = (offset, length, done=None))]
    fn read(
        &self,
        py: Python<'_>,
        offset: u64,
        length: usize,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let (open, failed) = (self.open.clone(), self.failed());
        run(py, done, async move { open.read(offset, length).await.map(Content::from).map_err(failed) })
    }

    /// Reads bytes at `offset` into a buffer. Returns how many; fewer than fit only at the end of the file.
    fn readinto(&self, py: Python<'_>, offset: u64, buffer: PyBuffer<u8>) -> PyResult<usize> {
        let (open, failed) = (self.open.clone(), self.failed());
        let wanted = buffer.len_bytes();
        let bytes = wait(py, async move { open.read(offset, wanted).await.map_err(failed) })?;
        let target = buffer.as_slice_ptr().filter(|_| !buffer.readonly());
        let Some(target) = target else {
            return Err(Failure::new(libc::EINVAL, "the buffer is read-only or not contiguous").into());
        };
        let count = bytes.len().min(wanted);
        // SAFETY: the exported buffer is writable, contiguous and `wanted` bytes long, and it is not the memory of `bytes`, which no
        // Python object has.
        unsafe { target.cast::<u8>().copy_from_nonoverlapping(NonNull::from(&bytes[..count]).cast(), count) };
        Ok(count)
    }

    /// Writes all of the data at `offset`, or at the end of the file if it is `None`.
    fn write(&self, py: Python<'_>, offset: Option<u64>, data: PyBuffer<u8>) -> PyResult<usize> {
        let Some(slice) = data.as_slice_ptr() else {
            return Err(Failure::new(libc::EINVAL, "the data is not contiguous").into());
        };
        // SAFETY: the buffer is exported until `data` is dropped, so its memory neither moves nor is freed. Another thread
        // may change the bytes meanwhile, as with every file object of Python; they are only copied.
        let bytes = unsafe { slice.as_ref() };
        let (open, failed) = (&self.open, self.failed());
        let written = async {
            match offset {
                Some(offset) => open.write(offset, bytes).await,
                None => open.append(bytes).await,
            }
        };
        wait_borrowing(py, async { written.await.map_err(failed) })?;
        Ok(bytes.len())
    }

    /// Returns the length of the file, as this handle has seen it last.
    fn size(&self) -> u64 {
        self.open.size_bytes()
    }

    /// Returns the present length of the file.
    fn current_size(&self, py: Python<'_>) -> PyResult<u64> {
        let (open, failed) = (self.open.clone(), self.failed());
        wait(py, async move { open.refresh().await.map_err(failed) })
    }

    /// Sets the length of the file.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        let (open, failed) = (self.open.clone(), self.failed());
        wait(py, async move { open.truncate(size).await.map_err(failed) })
    }

    /// Stores and names what was written: others see it when this returns.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        let (open, failed) = (self.open.clone(), self.failed());
        wait(py, async move { open.flush().await.map_err(failed) })
    }

    /// Closes the file.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let (open, failed) = (self.open.clone(), self.failed());
        wait(py, async move { open.close().await.map_err(failed) })
    }
}
