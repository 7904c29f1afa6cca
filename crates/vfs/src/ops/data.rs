//! Reading and writing through handles, allocation of ranges, and copies of ranges.

use bytes::Bytes;

use crate::config::PART_BYTES_MIN;
use crate::content::write::When;
use crate::content::write::copy::{COPIED_MAX, unsupported};
use crate::content::write::editor::end_of;
use crate::followers::invalidation::Invalidation;
use crate::names::handles::Handle;
use crate::{Error, Filesystem, Result};

impl Filesystem {
    /// Reserves or zeros a range; `mode` is that of `fallocate`. An object store reserves no space, so a plain reservation only
    /// extends the file. Where the free space is known (a drive, a disk), a larger reservation is refused.
    pub async fn fallocate(&self, handle: Handle, mode: i32, offset: u64, len: u64) -> Result<()> {
        let file = self.io.editor.writable_file(handle, offset, len)?;
        let keeps_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        if !keeps_size {
            self.names.check_quota(file.ino, offset + len)?;
            self.io.editor.check_storable(&file, offset + len)?;
        }
        let zeros = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => false,
            libc::FALLOC_FL_ZERO_RANGE => true,
            libc::FALLOC_FL_PUNCH_HOLE if keeps_size => true,
            _ => {
                return Err(Error::new(
                    libc::EOPNOTSUPP,
                    "only allocation, FALLOC_FL_ZERO_RANGE and FALLOC_FL_PUNCH_HOLE are supported",
                ));
            }
        };
        let range = offset..offset + len;
        {
            let mut state = file.write_state.lock().await;
            let outcome = self.io.editor.allocate_locked(&file, &mut state, range, keeps_size, zeros).await;
            self.content.update_pending(&file, &state);
            outcome?;
        }
        self.io.editor.write_through(&file).await
    }

    /// Writes all of `data` at `offset`.
    pub async fn write(&self, handle: Handle, offset: u64, data: &[u8]) -> Result<()> {
        self.locks().check_handle(handle)?;
        self.io.editor.write_at(handle, Some(offset), data).await.map(drop)
    }

    /// Writes all of `data` at the end of the file; `expected` is where the front end believes the end to be.
    pub async fn append(&self, handle: Handle, expected: u64, data: &[u8]) -> Result<()> {
        self.locks().check_handle(handle)?;
        if self.io.editor.write_at(handle, None, data).await? != expected {
            // The front end caches the written bytes at the wrong offset.
            self.names.tell(Invalidation::Inode(self.names.handles().file(handle)?.file.ino));
        }
        Ok(())
    }

    /// Writes all of `data` if that needs no waiting, as is usual, so that the front end need not copy the bytes. `None`:
    /// nothing was written, call [`Filesystem::write`].
    pub fn write_now(&self, handle: Handle, offset: u64, data: &[u8]) -> Option<Result<()>> {
        self.io.editor.write_now_if(handle, offset, data, |_, _| true)
    }

    /// Appends like [`Filesystem::append`], if that needs no waiting and the file ends at `expected`. `None`: nothing
    /// was written, call [`Filesystem::append`].
    pub fn append_now(&self, handle: Handle, expected: u64, data: &[u8]) -> Option<Result<()>> {
        self.io.editor.write_now_if(handle, expected, data, |file, state| end_of(file, state) == expected)
    }

    /// Copies up to `len` bytes from one open file to another, inside the store; returns how many. EOPNOTSUPP if that
    /// is not possible or not worthwhile: the caller then reads and writes.
    pub async fn copy_range(
        &self,
        (from, from_offset): (Handle, u64),
        (to, to_offset): (Handle, u64),
        len: u64,
    ) -> Result<u64> {
        let source = self.names.handles().file(from)?;
        let len = len.min(COPIED_MAX);
        let (reading, _) = source.begin_read().await?;
        let target = self.io.editor.writable_file(to, to_offset, len)?;
        let mut state = target.write_state.lock().await;
        let before = self.names.tables().inode(target.ino)?;
        let has_path_key = self.names.has_path_key(&before)?;
        if !has_path_key {
            self.io.publisher.commit_locked(&target, &mut state, When::Open).await?;
            if !state.is_published() {
                return Err(unsupported("some of the target is in no object yet"));
            }
        }
        if source.file.pending().is_dirty {
            return Err(unsupported("some of the source is in no object yet"));
        }
        let (pin, lineage) = source.file.pin();
        if lineage != source.version.lineage() {
            return Err(unsupported("the source has changed"));
        }
        let Some(pin) = pin else { return Err(unsupported("nothing of the source is stored")) };
        let range = from_offset..from_offset.saturating_add(len).min(pin.size_bytes);
        if range.start >= range.end {
            return Ok(0);
        }
        let copied = range.end - range.start;
        if copied < PART_BYTES_MIN {
            return Err(unsupported("so few bytes are as fast to read and write"));
        }
        self.names.check_quota(target.ino, to_offset + copied)?;
        self.io.editor.check_storable(&target, to_offset + copied)?;
        if has_path_key
            && !self.io.uploader.may_store_range_apart(&before, &state, to_offset..to_offset + copied)?
        {
            return Err(unsupported("the object at the target's path would no longer identify the target"));
        }
        self.content.record_access(source.file.ino);
        self.io
            .editor
            .copy_pin(&target, &mut state, pin.slice_at(&range, to_offset)?, to_offset..to_offset + copied)
            .await?;
        drop(state);
        reading.succeed();
        self.names.sync_names_unless_write_back().await?;
        Ok(copied)
    }

    /// Reads `len` bytes at `offset`; fewer only at the end of the file.
    pub async fn read(&self, handle: Handle, offset: u64, len: usize) -> Result<Bytes> {
        self.locks().check_current()?;
        let handle = self.names.handles().file(handle)?;
        if handle.take_atime_check(self.mount.config.atime, self.mount.now()) {
            self.content.record_access(handle.file.ino);
        }
        let range = offset..offset.saturating_add(len as u64);
        if handle.file.is_outdated()
            && let Err(error) = self.content.read_newest(handle.file.ino)
        {
            tracing::debug!(%error, "the newest content of an open file cannot be read yet; its earlier content is read");
        }
        if handle.file.pending().is_edited {
            // After these bytes are stored another client may replace them, so the read counts as a read of this version.
            let (reading, _) = handle.begin_read().await?;
            if let Some(bytes) = self.io.reader.read_edited(&handle, range.clone()).await? {
                reading.succeed();
                return Ok(bytes);
            }
        }
        self.io.reader.read_published(&handle, range).await
    }
}
