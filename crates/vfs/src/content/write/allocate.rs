//! `fallocate`: space reservation, and ranges that become zeros.

use std::ops::Range;

use crate::content::open_file::OpenFile;
use crate::content::write::WriteState;
use crate::content::write::editor::FileEditor;
use crate::{Error, Result};

/// Zeros written to memory, in pieces of this size.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl FileEditor {
    /// Zeros a range if `zeros`, and extends the file to its end unless `keeps_size`, for a caller that holds the
    /// file's write state. ENOSPC if the store lacks the space for bytes behind the end.
    pub(crate) async fn allocate_locked(
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
        if !is_hole && self.content.disk_space().now().is_some_and(|space| grows_by > space.available_bytes) {
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
        self.content.begin_edit(file, state)?;
        if let WriteState::Memory(memory) = state {
            for start in range.clone().step_by(ZEROS.len()) {
                let len = (range.end - start).min(ZEROS.len() as u64) as usize;
                memory.write(self.content.slabs(), start, &ZEROS[..len]);
            }
            return Ok(());
        }
        self.publisher.spill_to_disk(file, state).await?;
        self.content.begin_edit(file, state)?;
        match state {
            WriteState::Local(local) => Ok(local.punch(range)?),
            _ => Err(Error::new(libc::EIO, "the file's write state does not allow zeroing a range")),
        }
    }
}
