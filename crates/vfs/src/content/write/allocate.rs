//! `fallocate`: space reservation, and ranges that become zeros.

use std::ops::Range;

use crate::content::open_file::OpenFile;
use crate::content::write::WriteState;
use crate::names::handles::Handle;
use crate::{Error, Filesystem, Result};

/// Zeros written to memory, in pieces of this size.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl Filesystem {
    /// Reserves or zeros a range; `mode` is that of `fallocate`. An object store reserves no space, so a plain reservation only
    /// extends the file. Where the free space is known (a drive, a disk), a larger reservation is refused.
    pub async fn fallocate(&self, handle: Handle, mode: i32, offset: u64, len: u64) -> Result<()> {
        let file = self.writable_file(handle, offset, len)?;
        let keeps_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        if !keeps_size {
            self.check_quota(file.ino, offset + len)?;
            self.check_storable(&file, offset + len)?;
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
            let outcome = self.allocate_locked(&file, &mut state, range, keeps_size, zeros).await;
            self.update_pending(&file, &state);
            outcome?;
        }
        self.write_through(&file).await
    }

    async fn allocate_locked(
        &self,
        file: &OpenFile,
        state: &mut WriteState,
        range: Range<u64>,
        keeps_size: bool,
        zeros: bool,
    ) -> Result<()> {
        let size = state.size_bytes().unwrap_or_else(|| file.pin().0.map_or(0, |pin| pin.size_bytes));
        let known = range.start..range.end.min(size);
        let grows_by = range.end.saturating_sub(range.start.max(size));
        let is_hole = zeros && keeps_size;
        if !is_hole && self.disk_space.now().is_some_and(|space| grows_by > space.available_bytes) {
            return Err(Error::new(libc::ENOSPC, "not enough free space for this allocation"));
        }
        if zeros && !known.is_empty() {
            self.zero(file, state, known).await?;
        }
        if !keeps_size && range.end > size {
            self.truncate_locked(file, state, range.end).await?;
        }
        Ok(())
    }

    /// Zeros a range inside the file.
    async fn zero(&self, file: &OpenFile, state: &mut WriteState, range: Range<u64>) -> Result<()> {
        self.begin_edit(file, state)?;
        if let WriteState::Memory(memory) = state {
            for start in range.clone().step_by(ZEROS.len()) {
                let len = (range.end - start).min(ZEROS.len() as u64) as usize;
                memory.write(&self.slabs, start, &ZEROS[..len]);
            }
            return Ok(());
        }
        self.spill_to_disk(file, state).await?;
        self.begin_edit(file, state)?;
        match state {
            WriteState::Local(local) => Ok(local.punch(range)?),
            _ => Err(Error::new(libc::EIO, "the file's write state does not allow zeroing a range")),
        }
    }
}
