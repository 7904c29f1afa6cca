//! Writes and truncations of files, and the release of handles.

use meta::Inode;
use std::sync::{Arc, PoisonError};
use store::StoreError;

use crate::base::Base;
use crate::bucket::conflicts::ConflictRecords;
use crate::bucket::metadata::Described;
use crate::bucket::parts::BucketParts;
use crate::content::Content;
use crate::content::open_file::{OpenFile, Pending};
use crate::content::opener::FileOpener;
use crate::content::pin::Pin;
use crate::content::publishing::check_not_lost;
use crate::content::write::publisher::Publisher;
use crate::content::write::uploader::Uploader;
use crate::content::write::{Local, Memory, Stream, Upload, When, WriteState, reserve_stream};
use crate::mount::Mount;
use crate::names::Names;
use crate::names::handles::Handle;
use crate::volume::Mapping;
use crate::{Error, Result};

/// Writes to files, truncates them, and releases handles.
#[derive(Debug)]
pub(crate) struct FileEditor {
    pub(in crate::content) mount: Arc<Mount>,
    pub(in crate::content) names: Arc<Names>,
    pub(in crate::content) content: Arc<Content>,
    pub(in crate::content) uploader: Arc<Uploader>,
    pub(in crate::content) publisher: Arc<Publisher>,
    pub(in crate::content) conflicts: Arc<ConflictRecords>,
    pub(in crate::content) opener: Arc<FileOpener>,
}

impl FileEditor {
    pub(crate) fn new(
        base: &Base,
        parts: &BucketParts,
        uploader: &Arc<Uploader>,
        publisher: &Arc<Publisher>,
        opener: &Arc<FileOpener>,
    ) -> Arc<Self> {
        Arc::new(Self {
            mount: base.mount.clone(),
            names: base.names.clone(),
            content: base.content.clone(),
            uploader: uploader.clone(),
            publisher: publisher.clone(),
            conflicts: parts.conflicts.clone(),
            opener: opener.clone(),
        })
    }
}

impl FileEditor {
    /// Writes at `offset`, or at the end of the file if it is `None`; returns the offset written at.
    pub(crate) async fn write_at(&self, handle: Handle, offset: Option<u64>, data: &[u8]) -> Result<u64> {
        let written = self.names.handles().file(handle)?;
        let file = Arc::clone(&written.file);
        let at = {
            let mut state = file.write_state.lock().await;
            let at = offset.unwrap_or_else(|| end_of(&file, &state));
            self.file_with_room(handle, at, data.len() as u64)?;
            let outcome = self.write_locked(&file, &mut state, at, data).await;
            self.content.update_pending(&file, &state);
            outcome?;
            written.note_write();
            at
        };
        written.note_reported(self.write_through(&file).await)?;
        Ok(at)
    }

    /// Stores the writes at once if the mount is uncached.
    pub(crate) async fn write_through(&self, file: &OpenFile) -> Result<()> {
        if self.mount.config.is_uncached { self.publisher.commit(file, When::Open).await } else { Ok(()) }
    }

    /// Writes without waiting if `may_write` agrees; `None` if it does not, or the write would have to wait.
    pub(crate) fn write_now_if(
        &self,
        handle: Handle,
        offset: u64,
        data: &[u8],
        may_write: impl FnOnce(&OpenFile, &WriteState) -> bool,
    ) -> Option<Result<()>> {
        if self.mount.config.is_uncached {
            return None;
        }
        let file = match self.file_with_room(handle, offset, data.len() as u64) {
            Ok(file) => file,
            Err(error) => return Some(Err(error)),
        };
        let mut state = file.write_state.try_lock().ok().filter(|state| may_write(&file, state))?;
        let end = offset + data.len() as u64;
        let is_done = match &mut *state {
            WriteState::Memory(memory) => {
                let fits = end <= self.mount.config.part_size_bytes && memory.reserve(end);
                if fits {
                    memory.write(self.content.slabs(), offset, data);
                }
                fits
            }
            WriteState::Stream(stream) if offset == stream.size_bytes() && stream.is_open() => {
                stream.append_now(self.content.slabs(), data)
            }
            _ => false,
        };
        if !is_done {
            return None;
        }
        self.content.update_pending(&file, &state);
        if let Ok(handle) = self.names.handles().file(handle) {
            handle.note_write();
        }
        Some(Ok(()))
    }

    /// Returns the file of a handle through which a range may be written. EBADF if the handle is not writable, EFBIG if
    /// the range is too far, ESTALE if writes of the handle lost in a conflict or an unresolved conflict blocks the
    /// file.
    pub(crate) fn writable_file(&self, handle: Handle, offset: u64, len: u64) -> Result<Arc<OpenFile>> {
        let handle = self.names.handles().file(handle)?;
        if !handle.is_writable {
            return Err(Error::BAD_HANDLE);
        }
        if i64::try_from(offset.saturating_add(len)).is_err() {
            return Err(Error::new(libc::EFBIG, "a file cannot be longer than 2^63 - 1 bytes"));
        }
        check_not_lost(&handle)?;
        self.conflicts.check_not_in_conflict(handle.file.ino)?;
        Ok(Arc::clone(&handle.file))
    }

    /// Like `writable_file`; also fails if the file may not grow to the end of the range.
    pub(crate) fn file_with_room(&self, handle: Handle, offset: u64, len: u64) -> Result<Arc<OpenFile>> {
        let file = self.writable_file(handle, offset, len)?;
        self.names.check_quota(file.ino, offset + len)?;
        self.check_storable(&file, offset + len)?;
        Ok(file)
    }

    /// Fails with EFBIG for a length that no store can hold. A file named by path is one object including its zeros; a
    /// file that is longer already can still be cut and changed.
    pub(crate) fn check_storable(&self, file: &OpenFile, size_bytes: u64) -> Result<()> {
        if size_bytes <= self.mount.rules.file_bytes_max {
            return Ok(());
        }
        if size_bytes <= file.overlay(self.names.tables().inode(file.ino)?).size_bytes {
            return Ok(());
        }
        Err(Error::new(libc::EFBIG, "the file would exceed 5 TiB, the maximum length of an object"))
    }

    /// Fails with ENOSPC for a new hole of `bytes` that the drive or disk has no space for, where objects contain
    /// holes: the close that stores the zeros would fill it.
    fn check_hole_fits(&self, bytes: u64) -> Result<()> {
        let has_no_space =
            || self.content.disk_space().now().is_some_and(|space| bytes > space.available_bytes);
        if bytes > 0 && self.mount.rules.stores_holes && has_no_space() {
            return Err(Error::new(libc::ENOSPC, "the zeros of this hole take more space than is free"));
        }
        Ok(())
    }

    /// Truncates a file, or extends it with a hole.
    pub(crate) async fn truncate(&self, file: &Arc<OpenFile>, size: u64) -> Result<()> {
        self.names.check_quota(file.ino, size)?;
        self.check_storable(file, size)?;
        self.conflicts.check_not_in_conflict(file.ino)?;
        {
            let mut state = file.write_state.lock().await;
            let outcome = self.truncate_locked(file, &mut state, size).await;
            self.content.update_pending(file, &state);
            outcome?;
        }
        self.write_through(file).await
    }

    /// Writes at an offset, for a caller that holds the file's write state.
    async fn write_locked(
        &self,
        file: &OpenFile,
        state: &mut WriteState,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        self.content.begin_edit(file, state)?;
        self.check_hole_fits(state.size_bytes().map_or(0, |size_bytes| offset.saturating_sub(size_bytes)))?;
        let end = offset + data.len() as u64;
        if let WriteState::Memory(memory) = state {
            if end <= self.mount.config.part_size_bytes && memory.reserve(end) {
                memory.write(self.content.slabs(), offset, data);
                return Ok(());
            }
            if offset != memory.size_bytes() || !self.publisher.begin_stream(file, state).await? {
                self.publisher.spill_to_disk(file, state).await?;
            }
        }
        if let WriteState::Stream(stream) = state {
            if offset == stream.size_bytes() && stream.is_open() {
                if !stream.has_room(data.len() as u64) {
                    return Err(Error::new(
                        libc::EFBIG,
                        "the file needs more than 10,000 parts: mount with a larger --part-size or --memory-limit",
                    ));
                }
                return Ok(stream.append(self.content.slabs(), data).await?);
            }
            self.publisher.spill_to_disk(file, state).await?;
        }
        self.content.begin_edit(file, state)?;
        if let WriteState::Memory(_) = state {
            self.publisher.spill_to_disk(file, state).await?;
        }
        let WriteState::Local(local) = state else {
            return Err(Error::new(libc::EIO, "the file's write state does not allow this write"));
        };
        Ok(local.write(offset, data)?)
    }

    /// Sets the file's length, for a caller that holds its write state.
    pub(crate) async fn truncate_locked(
        &self,
        file: &OpenFile,
        state: &mut WriteState,
        size: u64,
    ) -> Result<()> {
        if size == 0 && !matches!(state, WriteState::Stream(_)) {
            let base = if state.is_clean() { file.pin().0 } else { state.base().cloned() };
            *state = self.content.empty(base)?;
            return Ok(());
        }
        let size_before = state.size_bytes().unwrap_or_else(|| file.pin().0.map_or(0, |pin| pin.size_bytes));
        self.check_hole_fits(size.saturating_sub(size_before))?;
        if state.size_bytes() == Some(size) {
            return Ok(());
        }
        if let WriteState::Memory(memory) = state
            && size <= self.mount.config.part_size_bytes
            && memory.reserve(size)
        {
            memory.resize(self.content.slabs(), size);
            return Ok(());
        }
        self.publisher.spill_to_disk(file, state).await?;
        if state.is_clean() {
            *state = match file.pin().0 {
                Some(pin) => WriteState::Local(Local::begin(&self.mount.config.cache_dir, Some(pin))?),
                None => WriteState::Local(Local::begin_empty(&self.mount.config.cache_dir, None)?),
            };
        }
        let WriteState::Local(local) = state else {
            return Err(Error::new(libc::EIO, "the file's write state does not allow a resize"));
        };
        Ok(local.resize(size)?)
    }
}

impl Content {
    /// Marks a created file as an empty one to be stored, unless it was written already.
    pub(crate) fn begin_new(&self, file: &OpenFile, state: &mut WriteState) -> Result<()> {
        if state.is_clean() && file.pin().0.is_none() {
            *state = self.empty(None)?;
            self.update_pending(file, state);
        }
        Ok(())
    }

    /// Returns the write state of an empty file that replaces `base`: in memory, or on the local disk without free
    /// memory.
    fn empty(&self, base: Option<Arc<Pin>>) -> Result<WriteState> {
        Ok(match Memory::begin(&self.write_budget, base.clone()) {
            Some(memory) => WriteState::Memory(memory),
            None => WriteState::Local(Local::begin_empty(&self.mount.config.cache_dir, base)?),
        })
    }

    /// Begins the first write to a clean file: over its content, or anew if that is empty.
    pub(crate) fn begin_edit(&self, file: &OpenFile, state: &mut WriteState) -> Result<()> {
        if !state.is_clean() {
            return Ok(());
        }
        *state = match file.pin().0 {
            Some(pin) if pin.size_bytes > 0 => {
                WriteState::Local(Local::begin(&self.mount.config.cache_dir, Some(pin))?)
            }
            base => self.empty(base)?,
        };
        // Noted before anything waits: foreign objects stored from now on are conflicts.
        self.update_pending(file, state);
        Ok(())
    }

    /// Updates the state of the unpublished writes that programs see.
    pub(crate) fn update_pending(&self, file: &OpenFile, state: &WriteState) {
        let pending = match state.size_bytes() {
            Some(size_bytes) => Pending {
                is_edited: true,
                is_dirty: !state.is_published(),
                is_stream: matches!(state, WriteState::Stream(_)),
                size_bytes,
                data_bytes: state.data_bytes().unwrap_or(size_bytes),
                touched: Some(self.mount.now()),
            },
            None => Pending::default(),
        };
        file.set_pending(pending);
    }
}

impl Publisher {
    /// Turns writes in memory into a stream; returns false if there is no memory for one, or the file has no name to
    /// store it under.
    async fn begin_stream(&self, file: &OpenFile, state: &mut WriteState) -> Result<bool> {
        let part_bytes = match self.mount.layout.mapping() {
            Mapping::Whole => self.mount.config.part_size_bytes,
            Mapping::Chunked { bytes } => bytes,
        };
        let inode = file.overlay(self.names.tables().inode(file.ino)?);
        let Some(held) = reserve_stream(self.content.write_budget(), part_bytes) else { return Ok(false) };
        if inode.home.is_none() {
            return Ok(false);
        }
        self.ensure_volume_record().await?;
        let _path = self.locks.lock_path(file.ino).await?;
        let (described, upload) = loop {
            let described = self.description_to_store(file, &inode, state.base()).await?;
            match self.begin_upload(&inode, &described).await {
                Err(Error::Store(StoreError::Invalid(why)))
                    if self.metadata.drop_refused_pending(file.ino, &why)? => {}
                upload => break (described, upload?),
            }
        };
        file.mark_streaming();
        let mut stream = Stream::begin(upload, (&inode, described), state.base().cloned(), part_bytes, held);
        if let WriteState::Memory(memory) = &*state {
            for piece in memory.pieces() {
                stream.append(self.content.slabs(), piece).await?;
            }
        }
        *state = WriteState::Stream(Box::new(stream));
        Ok(true)
    }

    /// Begins the upload of a stream: one object, or one per chunk.
    async fn begin_upload(&self, inode: &Inode, described: &Described) -> Result<Upload> {
        let Described { attributes, tags } = described.clone();
        if let Mapping::Chunked { .. } = self.mount.layout.mapping() {
            return Ok(Upload::chunks(Arc::downgrade(&self.mount), inode.ino, attributes));
        }
        let key = match self.names.path_key(inode)? {
            Some(key) => key,
            None => self.content.new_key(inode.ino)?,
        };
        let parts = self.mount.store.multipart(&key, attributes, tags).await?;
        Ok(Upload::Object { parts, key })
    }
}

/// Returns the current end of a file.
pub(crate) fn end_of(file: &OpenFile, state: &WriteState) -> u64 {
    state.size_bytes().unwrap_or_else(|| file.pin().0.map_or(0, |pin| pin.size_bytes))
}

impl FileEditor {
    /// Closes a handle whose last descriptor was closed, and stores the file's writes if the handle is writable.
    pub(crate) async fn release(&self, handle: Handle) -> Result<()> {
        let handle = self.names.handles().remove_file(handle).ok_or(Error::BAD_HANDLE)?;
        let outcome =
            if handle.is_writable { self.publisher.commit(&handle.file, When::Closed).await } else { Ok(()) };
        if outcome.is_ok()
            && let Err(error) = self.uploader.assemble_closed(&handle.file).await
        {
            tracing::warn!(ino = %handle.file.ino, %error, "the parts of a closed file could not be joined to one object; the file stays in several objects, and no data is lost");
        }
        let end = handle.readahead.lock().unwrap_or_else(PoisonError::into_inner).read_in_order();
        self.content.drop_passed_blocks(&handle.file, end);
        if !handle.version.is_cached {
            self.names.references().mark_mixed(handle.file.ino);
        }
        self.opener.close_file(&handle.file).await?;
        outcome
    }
}
