//! A volume as a Python object: one method for each operation.

use crate::bulk;
use crate::content::{self, Content};
use crate::failure::{Failure, Outcome};
use crate::file::{self, File};
use crate::options;
use crate::parallel;
use crate::parts::Parts;
use crate::paths;
use crate::runtime::{run, wait};
use crate::stat::Stat;
use crate::tree;
use cli::library::{self, OpenError, OpenedVolume};
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyDict;
use pyo3::{Bound, Py, PyAny, PyResult, Python, pyclass, pymethods};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use store::Timestamp;
use vfs::{Changes, Time};

/// An open volume and its parts.
#[derive(Debug)]
struct Opened {
    volume: OpenedVolume,
    parts: Parts,
}

/// An open volume. Paths are relative to its root. A method that is called with `done` returns at once.
#[derive(Debug)]
#[pyclass(frozen, module = "tenon._native")]
pub(crate) struct Volume {
    opened: Mutex<Option<Opened>>,
    /// The process that opened the volume. A forked process must open it again.
    pid: u32,
    url: String,
}

impl Volume {
    fn parts(&self) -> PyResult<Parts> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        match &*opened {
            Some(opened) if self.pid == std::process::id() => Ok(opened.parts.clone()),
            Some(_) => Err(Failure::new(libc::EBADF, "the volume was opened before a fork").into()),
            None => Err(Failure::new(libc::EBADF, "the volume is closed").into()),
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let opened = self.opened.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.pid != std::process::id() {
            // The threads that would close the volume are in the parent process, which still uses the state directory.
            std::mem::forget(opened);
        }
    }
}

#[pymethods]
impl Volume {
    /// Opens the volume at a URL.
    #[new]
    #[pyo3(signature = (url, options))]
    fn open(py: Python<'_>, url: String, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let settings = options::settings(options)?;
        let opening = async move {
            OpenedVolume::open(&url, settings).await.map_err(|error| match error {
                OpenError::Busy(text) => Failure::new(libc::EBUSY, text),
                OpenError::Invalid(text) => Failure::new(libc::EINVAL, text),
                OpenError::Failed(text) => Failure::new(libc::EIO, text),
            })
        };
        let volume = wait(py, opening)?;
        let fs = volume.filesystem().clone();
        let has_disk_cache = fs.status().disk_cache.is_some();
        let parts = Parts { fs, objects: volume.objects(), has_disk_cache };
        let url = volume.url();
        Ok(Self { opened: Mutex::new(Some(Opened { volume, parts })), pid: std::process::id(), url })
    }

    /// The URL of the volume, without secrets.
    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    /// Whether the volume is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Stores pending changes, for at most `patience` seconds, and closes the volume. Does nothing if it is closed.
    fn close(&self, py: Python<'_>, patience: f64) -> PyResult<()> {
        if self.pid != std::process::id() {
            return Ok(());
        }
        let taken = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Opened { volume, parts }) = taken else { return Ok(()) };
        drop(parts);
        let patience = Duration::try_from_secs_f64(patience).unwrap_or(Duration::MAX);
        let closing = async move {
            volume.close(patience).await.map_err(|error| Failure::new(libc::EIO, format!("{error:#}")))
        };
        wait(py, closing)
    }

    /// Returns the figures of the caches by name, all in bytes and since the volume was opened.
    fn cache_usage(&self) -> PyResult<BTreeMap<&'static str, u64>> {
        let status = self.parts()?.fs.status();
        let memory = [
            ("memory_bytes", status.read_bytes),
            ("memory_limit_bytes", status.memory_limit_bytes),
            ("metadata_bytes", status.metadata_bytes),
        ];
        let disk = status.disk_cache.iter().flat_map(|disk| {
            [
                ("disk_bytes", disk.used_bytes),
                ("disk_limit_bytes", disk.limit_bytes),
                ("disk_hit_bytes", disk.hit_bytes),
                ("disk_stored_bytes", disk.stored_bytes),
            ]
        });
        Ok(memory.into_iter().chain(disk).collect())
    }

    /// Waits until no metadata engine is open, before the end of the process.
    #[staticmethod]
    fn wait_until_closed(py: Python<'_>) {
        py.detach(library::wait_until_closed);
    }

    #[pyo3(signature = (path, follow=true, done=None))]
    fn stat(
        &self,
        py: Python<'_>,
        path: OsString,
        follow: bool,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        run(py, done, async move {
            let node = paths::resolve(&parts.fs, &path.into_vec(), follow).await?;
            Ok(Stat::from(&node.attr))
        })
    }

    #[pyo3(signature = (path, done=None))]
    fn list(&self, py: Python<'_>, path: OsString, done: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        run(py, done, async move { tree::list(parts, path.into_vec()).await })
    }

    #[pyo3(signature = (path, depth_max=None, done=None))]
    fn walk(
        &self,
        py: Python<'_>,
        path: OsString,
        depth_max: Option<usize>,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        run(py, done, async move { tree::walk(parts, path.into_vec(), depth_max).await })
    }

    #[pyo3(signature = (path, mode, parents, done=None))]
    fn mkdir(
        &self,
        py: Python<'_>,
        path: OsString,
        mode: u16,
        parents: bool,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        run(py, done, tree::make_directory(parts, path.into_vec(), mode, parents))
    }

    #[pyo3(signature = (path, done=None))]
    fn unlink(&self, py: Python<'_>, path: OsString, done: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        run(py, done, tree::remove(parts, path.into_vec(), false))
    }

    #[pyo3(signature = (path, done=None))]
    fn rmdir(&self, py: Python<'_>, path: OsString, done: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        run(py, done, tree::remove(parts, path.into_vec(), true))
    }

    #[pyo3(signature = (paths, done=None))]
    fn unlink_many(
        &self,
        py: Python<'_>,
        paths: Vec<OsString>,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        run(py, done, tree::remove_files(parts, into_bytes(paths)))
    }

    #[pyo3(signature = (path, done=None))]
    fn rmtree(&self, py: Python<'_>, path: OsString, done: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        run(py, done, tree::remove_tree(parts, path.into_vec()))
    }

    /// Renames a name; `flags` are those of `renameat2`.
    #[pyo3(signature = (source, target, flags=0, done=None))]
    fn rename(
        &self,
        py: Python<'_>,
        source: OsString,
        target: OsString,
        flags: u32,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        let (source, target) = (source.into_vec(), target.into_vec());
        run(py, done, async move {
            let (from, name) = paths::resolve_parent(&parts.fs, &source).await?;
            let (to, new_name) = paths::resolve_parent(&parts.fs, &target).await?;
            let renamed = parts.fs.rename((from.ino(), name), (to.ino(), new_name), flags).await;
            renamed.map_err(|error| Failure::from(error).at(&source))
        })
    }

    #[pyo3(signature = (target, path, done=None))]
    fn symlink(
        &self,
        py: Python<'_>,
        target: OsString,
        path: OsString,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        let (target, path) = (target.into_vec(), path.into_vec());
        run(py, done, async move {
            let (parent, name) = paths::resolve_parent(&parts.fs, &path).await?;
            let made = parts.fs.symlink(tree::caller(), parent.ino(), name, &target).await;
            let made = made.map_err(|error| Failure::from(error).at(&path))?;
            drop(paths::Node::new(&parts.fs, made));
            Ok(())
        })
    }

    #[pyo3(signature = (path, done=None))]
    fn readlink(&self, py: Python<'_>, path: OsString, done: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        run(py, done, async move {
            let path = path.into_vec();
            let node = paths::resolve(&parts.fs, &path, false).await?;
            let target = parts.fs.readlink(node.ino()).await;
            let target = target.map_err(|error| Failure::from(error).at(&path))?;
            Ok(OsString::from_vec(target.to_vec()))
        })
    }

    /// Makes another name of a file (a hard link).
    #[pyo3(signature = (source, target, done=None))]
    fn link(
        &self,
        py: Python<'_>,
        source: OsString,
        target: OsString,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        let (source, target) = (source.into_vec(), target.into_vec());
        run(py, done, async move {
            let node = paths::resolve(&parts.fs, &source, true).await?;
            let (parent, name) = paths::resolve_parent(&parts.fs, &target).await?;
            let made = parts.fs.link(node.ino(), parent.ino(), name).await;
            drop(paths::Node::new(&parts.fs, made.map_err(|error| Failure::from(error).at(&target))?));
            Ok(())
        })
    }

    /// Changes attributes; `None` leaves one as it is. Times are in nanoseconds since 1970.
    #[expect(clippy::too_many_arguments, reason = "these are the attributes of POSIX")]
    #[pyo3(signature = (path, mode=None, uid=None, gid=None, size=None, atime_ns=None, mtime_ns=None, done=None))]
    fn setattr(
        &self,
        py: Python<'_>,
        path: OsString,
        mode: Option<u16>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime_ns: Option<i64>,
        mtime_ns: Option<i64>,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        let time = |at: Option<i64>| at.map(|at| Time::At(Timestamp(at)));
        let changes =
            Changes { mode, uid, gid, size_bytes: size, atime: time(atime_ns), mtime: time(mtime_ns) };
        run(py, done, async move {
            let path = path.into_vec();
            let node = paths::resolve(&parts.fs, &path, true).await?;
            let changed = parts.fs.setattr(tree::caller(), node.ino(), changes, None).await;
            changed.map(drop).map_err(|error| Failure::from(error).at(&path))
        })
    }

    #[pyo3(signature = (path, name, done=None))]
    fn getxattr(
        &self,
        py: Python<'_>,
        path: OsString,
        name: OsString,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        run(py, done, async move {
            let path = path.into_vec();
            let node = paths::resolve(&parts.fs, &path, true).await?;
            let value = parts.fs.getxattr(node.ino(), &name.into_vec()).await;
            value.map(Content::from).map_err(|error| Failure::from(error).at(&path))
        })
    }

    #[pyo3(signature = (path, done=None))]
    fn listxattr(&self, py: Python<'_>, path: OsString, done: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        run(py, done, async move {
            let path = path.into_vec();
            let node = paths::resolve(&parts.fs, &path, true).await?;
            let names = parts.fs.listxattr(node.ino()).await;
            let names = names.map_err(|error| Failure::from(error).at(&path))?;
            Ok(names.into_iter().map(|name| OsString::from_vec(name.into())).collect::<Vec<_>>())
        })
    }

    /// Sets an extended attribute, or removes it if `value` is `None`.
    #[pyo3(signature = (path, name, value, done=None))]
    fn setxattr(
        &self,
        py: Python<'_>,
        path: OsString,
        name: OsString,
        value: Option<PyBackedBytes>,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        run(py, done, async move {
            let (path, name) = (path.into_vec(), name.into_vec());
            let node = paths::resolve(&parts.fs, &path, true).await?;
            let changed = match value {
                Some(value) => parts.fs.setxattr(node.ino(), &name, &value, 0, |_| true).await,
                None => parts.fs.removexattr(node.ino(), &name).await,
            };
            changed.map_err(|error| Failure::from(error).at(&path))
        })
    }

    /// Stores all changes: names, attributes and content.
    #[pyo3(signature = (done=None))]
    fn sync(&self, py: Python<'_>, done: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        run(py, done, async move { Ok(parts.fs.sync().await?) })
    }

    /// Forgets names and attributes that were learned from the bucket, so that their next use asks the bucket again.
    fn forget_learned(&self, py: Python<'_>) -> PyResult<()> {
        let parts = self.parts()?;
        wait(py, async move { Ok(parts.fs.admin().forget_learned()?) })
    }

    /// Opens a file; `flags` are those of `open`.
    fn open_file(&self, py: Python<'_>, path: OsString, flags: i32) -> PyResult<File> {
        let parts = self.parts()?;
        let path = path.into_vec();
        let opening = {
            let path = path.clone();
            async move { file::open(&parts.fs, &path, flags, file::FILE_MODE).await }
        };
        Ok(File::new(wait(py, opening)?, path))
    }

    #[pyo3(signature = (path, start=0, end=None, done=None))]
    fn read_file(
        &self,
        py: Python<'_>,
        path: OsString,
        start: i64,
        end: Option<i64>,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        run(py, done, bulk::read_file(parts, path.into_vec(), start, end))
    }

    /// Returns the content of each file, or its exception.
    #[pyo3(signature = (paths, done=None))]
    fn read_files(
        &self,
        py: Python<'_>,
        paths: Vec<OsString>,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        run(py, done, bulk::read_files(parts, into_bytes(paths)))
    }

    /// Returns the bytes of each range (path, start, end), or its exception.
    #[pyo3(signature = (ranges, done=None))]
    fn read_ranges(
        &self,
        py: Python<'_>,
        ranges: Vec<(OsString, i64, Option<i64>)>,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        let ranges = ranges.into_iter().map(|(path, start, end)| (path.into_vec(), start, end)).collect();
        run(py, done, bulk::read_ranges(parts, ranges))
    }

    #[pyo3(signature = (path, content, exclusive=false, done=None))]
    fn write_file(
        &self,
        py: Python<'_>,
        path: OsString,
        content: PyBackedBytes,
        exclusive: bool,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        run(py, done, bulk::write_file(parts, path.into_vec(), content::shared(content), exclusive))
    }

    /// Writes each file (path, content). Returns `None` or its exception for each.
    #[pyo3(signature = (files, exclusive=false, done=None))]
    fn write_files(
        &self,
        py: Python<'_>,
        files: Vec<(OsString, PyBackedBytes)>,
        exclusive: bool,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        let files = files.into_iter().map(|(path, data)| (path.into_vec(), content::shared(data))).collect();
        run(py, done, bulk::write_files(parts, files, exclusive))
    }

    /// Copies each file (path, local path) to the local disk. Returns `None` or its exception for each.
    #[pyo3(signature = (files, done=None))]
    fn get_files(
        &self,
        py: Python<'_>,
        files: Vec<(OsString, PathBuf)>,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        let files = files.into_iter().map(|(path, local)| (path.into_vec(), local)).collect();
        run(py, done, bulk::get_files(parts, files))
    }

    /// Copies each local file (local path, path) into the volume. Returns `None` or its exception for each.
    #[pyo3(signature = (files, done=None))]
    fn put_files(
        &self,
        py: Python<'_>,
        files: Vec<(PathBuf, OsString)>,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        let files = files.into_iter().map(|(local, path)| (local, path.into_vec())).collect();
        run(py, done, bulk::put_files(parts, files))
    }

    /// Copies each file (path, new path) inside the store. Returns `None` or its exception for each.
    #[pyo3(signature = (files, done=None))]
    fn copy_files(
        &self,
        py: Python<'_>,
        files: Vec<(OsString, OsString)>,
        done: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let parts = self.parts()?;
        let files = files.into_iter().map(|(from, to)| (from.into_vec(), to.into_vec())).collect();
        let copied = async move {
            let copy = move |(from, to)| bulk::copy_file(parts.clone(), from, to);
            Ok(parallel::each(files, copy).await)
        };
        run::<Vec<Outcome<()>>, _>(py, done, copied)
    }
}

fn into_bytes(paths: Vec<OsString>) -> Vec<Vec<u8>> {
    paths.into_iter().map(OsString::into_vec).collect()
}
