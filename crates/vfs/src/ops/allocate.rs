//! `fallocate`: space that is promised, and ranges that become zeros.

use std::ops::Range;

use crate::content::open_file::OpenFile;
use crate::content::write::Dirty;
use crate::names::handles::Handle;
use crate::{Error, Filesystem, Result};

/// Zeros are written to memory in pieces of this size.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl Filesystem {
    /// Makes room for a range, or zeros of it; `mode` is `fallocate`'s. An object store promises no space, so
    /// room alone only makes the file longer. Where the room is known (a drive, a disk), what exceeds it is refused.
    pub async fn fallocate(&self, handle: Handle, mode: i32, offset: u64, len: u64) -> Result<()> {
        let file = self.writable_file(handle, offset, len)?;
        let keeps_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        if !keeps_size {
            self.check_quota(file.ino, offset + len)?;
            self.must_be_storable(&file, offset + len)?;
        }
        let zeros = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => false,
            libc::FALLOC_FL_ZERO_RANGE => true,
            libc::FALLOC_FL_PUNCH_HOLE if keeps_size => true,
            _ => return Err(Error::new(libc::EOPNOTSUPP, "ranges can be allocated, zeroed and punched")),
        };
        let range = offset..offset + len;
        {
            let mut work = file.work.lock().await;
            let outcome = self.allocate_locked(&file, &mut work, range, keeps_size, zeros).await;
            self.note(&file, &work);
            outcome?;
        }
        self.write_through(&file).await
    }

    async fn allocate_locked(
        &self,
        file: &OpenFile,
        work: &mut Dirty,
        range: Range<u64>,
        keeps_size: bool,
        zeros: bool,
    ) -> Result<()> {
        let size = work.size_bytes().unwrap_or_else(|| file.pin().0.map_or(0, |pin| pin.size_bytes));
        let known = range.start..range.end.min(size);
        let grows_by = range.end.saturating_sub(range.start.max(size));
        let is_hole = zeros && keeps_size;
        if !is_hole && self.room.now().is_some_and(|room| grows_by > room.available_bytes) {
            return Err(Error::new(libc::ENOSPC, "there is less room than is to be allocated"));
        }
        if zeros && !known.is_empty() {
            self.zero(file, work, known).await?;
        }
        if !keeps_size && range.end > size {
            self.truncate_locked(file, work, range.end).await?;
        }
        Ok(())
    }

    /// Zeros a range inside the file.
    async fn zero(&self, file: &OpenFile, work: &mut Dirty, range: Range<u64>) -> Result<()> {
        self.begin_edit(file, work)?;
        if let Dirty::Memory(memory) = work {
            for start in range.clone().step_by(ZEROS.len()) {
                let len = (range.end - start).min(ZEROS.len() as u64) as usize;
                memory.write(&self.slabs, start, &ZEROS[..len]);
            }
            return Ok(());
        }
        self.settle(file, work).await?;
        self.begin_edit(file, work)?;
        match work {
            Dirty::Local(local) => Ok(local.punch(range)?),
            _ => Err(Error::new(libc::EIO, "the file is in no state to zero a range of")),
        }
    }
}
