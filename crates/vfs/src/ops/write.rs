//! Writing and truncating files.

use meta::Inode;
use std::sync::Arc;
use store::StoreError;

use crate::bucket::metadata::Described;
use crate::content::open_file::{OpenFile, Pending};
use crate::content::pin::Pin;
use crate::content::publishing::must_not_have_lost;
use crate::content::write::{Dirty, Local, Memory, Stream, Upload, When, reserve_stream};
use crate::names::handles::Handle;
use crate::volume::Mapping;
use crate::{Error, Filesystem, Result};

/// The largest object that S3 and the servers like it promise to hold: 5 TiB, in parts of which each may have 5 GiB.
const OBJECT_BYTES_MAX: u64 = 5 << 40;

impl Filesystem {
    /// Writes all of `data` at `offset`.
    pub async fn write(&self, handle: Handle, offset: u64, data: &[u8]) -> Result<()> {
        self.write_at(handle, Some(offset), data).await.map(drop)
    }

    /// Writes all of `data` at the end of the file, wherever a front end takes that to be.
    pub async fn append(&self, handle: Handle, expected: u64, data: &[u8]) -> Result<()> {
        if self.write_at(handle, None, data).await? != expected {
            // It keeps what was written elsewhere.
            self.invalidations.inode(self.handles.file(handle)?.file.ino);
        }
        Ok(())
    }

    /// Where it was written: without an offset at the end.
    async fn write_at(&self, handle: Handle, offset: Option<u64>, data: &[u8]) -> Result<u64> {
        let written = self.handles.file(handle)?;
        let file = Arc::clone(&written.file);
        let at = {
            let mut work = file.work.lock().await;
            let at = offset.unwrap_or_else(|| end_of(&file, &work));
            self.file_with_room(handle, at, data.len() as u64)?;
            let outcome = self.write_locked(&file, &mut work, at, data).await;
            self.note(&file, &work);
            outcome?;
            written.wrote();
            at
        };
        self.write_through(&file).await?;
        Ok(at)
    }

    /// Stores what was written, where nothing is kept.
    pub(crate) async fn write_through(&self, file: &OpenFile) -> Result<()> {
        if self.config.is_uncached { self.commit(file, When::Open).await } else { Ok(()) }
    }

    /// Writes all of `data` if that needs no wait, as most writes do: a front end need not keep a copy of the
    /// bytes for it. `None`: nothing is written, call [`Filesystem::write`].
    pub fn write_now(&self, handle: Handle, offset: u64, data: &[u8]) -> Option<Result<()>> {
        self.write_now_if(handle, offset, data, |_, _| true)
    }

    /// The same of [`Filesystem::append`].
    pub fn append_now(&self, handle: Handle, expected: u64, data: &[u8]) -> Option<Result<()>> {
        self.write_now_if(handle, expected, data, |file, work| end_of(file, work) == expected)
    }

    fn write_now_if(
        &self,
        handle: Handle,
        offset: u64,
        data: &[u8],
        may_write: impl FnOnce(&OpenFile, &Dirty) -> bool,
    ) -> Option<Result<()>> {
        if self.config.is_uncached {
            return None;
        }
        let file = match self.file_with_room(handle, offset, data.len() as u64) {
            Ok(file) => file,
            Err(error) => return Some(Err(error)),
        };
        let mut work = file.work.try_lock().ok().filter(|work| may_write(&file, work))?;
        let end = offset + data.len() as u64;
        let is_done = match &mut *work {
            Dirty::Memory(memory) => {
                let fits = end <= self.config.part_size_bytes && memory.reserve(end);
                if fits {
                    memory.write(&self.slabs, offset, data);
                }
                fits
            }
            Dirty::Stream(stream) if offset == stream.size_bytes() && stream.is_open() => {
                stream.append_now(&self.slabs, data)
            }
            _ => false,
        };
        if !is_done {
            return None;
        }
        self.note(&file, &work);
        if let Ok(handle) = self.handles.file(handle) {
            handle.wrote();
        }
        Some(Ok(()))
    }

    /// The file of a handle that may write, if a range can lie in it.
    pub(crate) fn writable_file(&self, handle: Handle, offset: u64, len: u64) -> Result<Arc<OpenFile>> {
        let handle = self.handles.file(handle)?;
        if !handle.is_writable {
            return Err(Error::BAD_HANDLE);
        }
        if i64::try_from(offset.saturating_add(len)).is_err() {
            return Err(Error::new(libc::EFBIG, "a file has at most 2^63 - 1 bytes"));
        }
        must_not_have_lost(&handle)?;
        self.check_not_in_conflict(handle.file.ino)?;
        Ok(Arc::clone(&handle.file))
    }

    /// The same, if the file may become as long as the range wants it.
    pub(crate) fn file_with_room(&self, handle: Handle, offset: u64, len: u64) -> Result<Arc<OpenFile>> {
        let file = self.writable_file(handle, offset, len)?;
        self.check_quota(file.ino, offset + len)?;
        self.must_be_storable(&file, offset + len)?;
        Ok(file)
    }

    /// An error for a length that no store can hold. A file whose path is its key is one object with all of its zeros; a
    /// file that is longer already can be cut and changed.
    pub(crate) fn must_be_storable(&self, file: &OpenFile, size_bytes: u64) -> Result<()> {
        if size_bytes <= OBJECT_BYTES_MAX || !self.layout.follows_paths() {
            return Ok(());
        }
        if size_bytes <= file.overlay(self.names.inode(file.ino)?).size_bytes {
            return Ok(());
        }
        Err(Error::new(libc::EFBIG, "one object holds the file, and the largest has 5 TiB"))
    }

    /// Cuts a file, or extends it with a hole.
    pub(crate) async fn truncate(&self, file: &Arc<OpenFile>, size: u64) -> Result<()> {
        self.check_quota(file.ino, size)?;
        self.must_be_storable(file, size)?;
        self.check_not_in_conflict(file.ino)?;
        {
            let mut work = file.work.lock().await;
            let outcome = self.truncate_locked(file, &mut work, size).await;
            self.note(file, &work);
            outcome?;
        }
        self.write_through(file).await
    }

    /// A file that was just made is empty and to be stored, unless somebody has written it already.
    pub(crate) fn begin_new(&self, file: &OpenFile, work: &mut Dirty) -> Result<()> {
        if work.is_clean() && file.pin().0.is_none() {
            *work = self.empty(None)?;
            self.note(file, work);
        }
        Ok(())
    }

    fn empty(&self, base: Option<Arc<Pin>>) -> Result<Dirty> {
        Ok(match Memory::begin(&self.write_budget, base.clone()) {
            Some(memory) => Dirty::Memory(memory),
            None => Dirty::Local(Local::begin_empty(&self.config.cache_dir, base)?),
        })
    }

    async fn write_locked(&self, file: &OpenFile, work: &mut Dirty, offset: u64, data: &[u8]) -> Result<()> {
        self.begin_edit(file, work)?;
        let end = offset + data.len() as u64;
        if let Dirty::Memory(memory) = work {
            if end <= self.config.part_size_bytes && memory.reserve(end) {
                memory.write(&self.slabs, offset, data);
                return Ok(());
            }
            if offset != memory.size_bytes() || !self.begin_stream(file, work).await? {
                self.settle(file, work).await?;
            }
        }
        if let Dirty::Stream(stream) = work {
            if offset == stream.size_bytes() && stream.is_open() {
                if !stream.has_room(data.len() as u64) {
                    return Err(Error::new(
                        libc::EFBIG,
                        "the file is longer than 10,000 parts: mount with a larger --part-size or --memory-limit",
                    ));
                }
                return Ok(stream.append(&self.slabs, data).await?);
            }
            self.settle(file, work).await?;
        }
        self.begin_edit(file, work)?;
        if let Dirty::Memory(_) = work {
            self.settle(file, work).await?;
        }
        let Dirty::Local(local) = work else {
            return Err(Error::new(libc::EIO, "the file is in no state to write to"));
        };
        Ok(local.write(offset, data)?)
    }

    pub(crate) async fn truncate_locked(&self, file: &OpenFile, work: &mut Dirty, size: u64) -> Result<()> {
        if size == 0 && !matches!(work, Dirty::Stream(_)) {
            let base = if work.is_clean() { file.pin().0 } else { work.base().cloned() };
            *work = self.empty(base)?;
            return Ok(());
        }
        if work.size_bytes() == Some(size) {
            return Ok(());
        }
        if let Dirty::Memory(memory) = work
            && size <= self.config.part_size_bytes
            && memory.reserve(size)
        {
            memory.resize(&self.slabs, size);
            return Ok(());
        }
        self.settle(file, work).await?;
        if work.is_clean() {
            *work = match file.pin().0 {
                Some(pin) => Dirty::Local(Local::begin(&self.config.cache_dir, Some(pin))?),
                None => Dirty::Local(Local::begin_empty(&self.config.cache_dir, None)?),
            };
        }
        let Dirty::Local(local) = work else {
            return Err(Error::new(libc::EIO, "the file is in no state to resize"));
        };
        Ok(local.resize(size)?)
    }

    /// The first write to a clean file: over its object, or anew where that is empty.
    pub(crate) fn begin_edit(&self, file: &OpenFile, work: &mut Dirty) -> Result<()> {
        if !work.is_clean() {
            return Ok(());
        }
        *work = match file.pin().0 {
            Some(pin) if pin.size_bytes > 0 => Dirty::Local(Local::begin(&self.config.cache_dir, Some(pin))?),
            base => self.empty(base)?,
        };
        // Before it waits for anything: what others store from now on is a conflict.
        self.note(file, work);
        Ok(())
    }

    /// Turns memory into a stream; false if there is no memory for one, or no name to store it under.
    async fn begin_stream(&self, file: &OpenFile, work: &mut Dirty) -> Result<bool> {
        let part_bytes = match self.layout.mapping() {
            Mapping::Whole => self.config.part_size_bytes,
            Mapping::Chunked { bytes } => bytes,
        };
        let inode = file.overlay(self.names.inode(file.ino)?);
        let Some(held) = reserve_stream(&self.write_budget, part_bytes) else { return Ok(false) };
        if inode.home.is_none() {
            return Ok(false);
        }
        self.ensure_volume_record().await?;
        let _path = self.lock_path(file.ino).await?;
        let (described, upload) = loop {
            let described = self.description_to_store(file, &inode, work.base()).await?;
            match self.begin_upload(&inode, &described).await {
                Err(Error::Store(StoreError::Invalid(why)))
                    if self.drop_refused_pending(file.ino, &why)? => {}
                upload => break (described, upload?),
            }
        };
        file.set_stream();
        let mut stream = Stream::begin(upload, (&inode, described), work.base().cloned(), part_bytes, held);
        if let Dirty::Memory(memory) = &*work {
            for piece in memory.pieces() {
                stream.append(&self.slabs, piece).await?;
            }
        }
        *work = Dirty::Stream(Box::new(stream));
        Ok(true)
    }

    /// Where a stream goes: one object, or one for each chunk.
    async fn begin_upload(&self, inode: &Inode, described: &Described) -> Result<Upload> {
        let Described { attributes, tags } = described.clone();
        if let Mapping::Chunked { .. } = self.layout.mapping() {
            return Ok(Upload::chunks(self.me.clone(), inode.ino, attributes));
        }
        let key = match self.path_key(inode)? {
            Some(key) => key,
            None => self.content_key(inode.ino)?,
        };
        let parts = self.store.multipart(&key, attributes, tags).await?;
        Ok(Upload::Object { parts, key })
    }

    /// What programs see of the writes from now on.
    pub(crate) fn note(&self, file: &OpenFile, work: &Dirty) {
        let pending = match work.size_bytes() {
            Some(size_bytes) => Pending {
                is_edited: true,
                is_dirty: !work.is_published(),
                is_stream: matches!(work, Dirty::Stream(_)),
                size_bytes,
                data_bytes: work.data_bytes().unwrap_or(size_bytes),
                touched: Some(self.now()),
            },
            None => Pending::default(),
        };
        file.set_pending(pending);
    }
}

/// Where the bytes that a file has now end.
fn end_of(file: &OpenFile, work: &Dirty) -> u64 {
    work.size_bytes().unwrap_or_else(|| file.pin().0.map_or(0, |pin| pin.size_bytes))
}
