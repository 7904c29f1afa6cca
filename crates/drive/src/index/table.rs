//! Tables of the index, stored in runs of the device.

use crate::device::{BLOCK_BYTES, BlockDevice, Buffer, reconstruct};
use crate::error::Result;
use crate::format::{Run, TableEntry};
use crate::index::table_error;
use crate::space::{Reservation, SharedSpace, lock};
use bytes::Bytes;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a table written at a time, before they are rounded up to whole rows. The last write may be shorter.
const WRITE_BYTES: usize = 1 << 20;

/// An open table.
pub(crate) type IndexTable = sst::Table<TableSource>;

/// The blocks of a table. They are freed when the last reader drops the table, unless a manifest that a recovery may read still names
/// it.
#[derive(Debug)]
pub(crate) struct TableSource {
    device: Arc<dyn BlockDevice>,
    runs: Vec<Run>,
    len_bytes: u64,
    space: SharedSpace,
    /// Whether a manifest that a recovery may read names the table.
    is_in_manifest: AtomicBool,
    /// Whether a part of the table is unreadable. Such a table is not merged.
    is_damaged: AtomicBool,
    /// Whether a compaction reads the table and will replace it.
    is_merging: AtomicBool,
}

/// The cause of a failed read or write of a table, with the position on the device, wrapped in an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub(super) struct DeviceCause {
    /// Position in bytes from the device's beginning.
    pub(super) at: u64,
    pub(super) is_read: bool,
    pub(super) reason: String,
}

impl DeviceCause {
    /// Returns an I/O error that says where the device failed.
    fn error(at: u64, is_read: bool, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), Self { at, is_read, reason: error.to_string() })
    }
}

impl TableSource {
    /// Makes the source of a table from reserved blocks, which it owns from now on.
    pub(crate) fn new(device: Arc<dyn BlockDevice>, entry: &TableEntry, space: SharedSpace) -> Self {
        let (runs, len_bytes) = (entry.runs.clone(), entry.len_bytes);
        let [is_in_manifest, is_damaged, is_merging] = [false; 3].map(AtomicBool::new);
        Self { device, runs, len_bytes, space, is_in_manifest, is_damaged, is_merging }
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len_bytes
    }

    pub(crate) fn entry(&self) -> TableEntry {
        TableEntry { runs: self.runs.clone(), len_bytes: self.len_bytes }
    }

    /// Returns whether a part of the table is known to be damaged.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Acquire)
    }

    /// Notes that a part of the table cannot be read.
    pub(crate) fn set_damaged(&self) {
        self.is_damaged.store(true, Ordering::Release);
    }

    /// Returns whether a compaction reads the table and will replace it.
    pub(crate) fn is_merging(&self) -> bool {
        self.is_merging.load(Ordering::Acquire)
    }

    pub(crate) fn set_merging(&self, is_merging: bool) {
        self.is_merging.store(is_merging, Ordering::Release);
    }

    /// Sets whether a manifest that a recovery may read names the table.
    pub(crate) fn set_in_manifest(&self, is_in_manifest: bool) {
        self.is_in_manifest.store(is_in_manifest, Ordering::Release);
    }
}

impl Drop for TableSource {
    fn drop(&mut self) {
        if !self.is_in_manifest.load(Ordering::Acquire) {
            let mut space = lock(&self.space);
            self.runs.iter().for_each(|&run| space.free_reserved(run));
        }
    }
}

impl sst::Source for TableSource {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_at(&self, at: u64, len: usize) -> io::Result<Bytes> {
        let (first, end) = self.blocks_of(at, len)?;
        let buffer = self.read_blocks(first, end, |at, into| self.device.read_at(at, into))?;
        let skip = (at - first) as usize;
        Ok(Bytes::from(buffer).slice(skip..skip + len))
    }

    fn read_otherwise(&self, at: u64, len: usize, is_right: &dyn Fn(&[u8]) -> bool) -> Option<Bytes> {
        let (first, end) = self.blocks_of(at, len).ok()?;
        let skip = (at - first) as usize;
        reconstruct(&*self.device, |reader| {
            let buffer = self.read_blocks(first, end, |at, into| reader.read_at(at, into)).ok()?;
            is_right(&buffer[skip..skip + len]).then(|| Bytes::from(buffer).slice(skip..skip + len))
        })
    }
}

impl TableSource {
    /// Returns the start and the end of the blocks that contain bytes of the table, relative to the table.
    fn blocks_of(&self, at: u64, len: usize) -> io::Result<(u64, u64)> {
        let end = at.checked_add(len as u64).filter(|&end| end <= self.len_bytes);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?.next_multiple_of(BLOCK_BYTES);
        Ok((at / BLOCK_BYTES * BLOCK_BYTES, end))
    }

    fn read_blocks(
        &self,
        first: u64,
        end: u64,
        mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<Buffer> {
        let mut buffer = Buffer::zeroed((end - first) as usize);
        let mut done = 0;
        for (place, len) in places(&self.runs, first, end) {
            let read = read(place, &mut buffer[done..done + len]);
            read.map_err(|error| DeviceCause::error(place, true, &error))?;
            done += len;
        }
        Ok(buffer)
    }
}

/// Returns the pieces of the device that hold a range of a table: position and length of each.
fn places(runs: &[Run], first: u64, end: u64) -> impl Iterator<Item = (u64, usize)> {
    let mut begins = 0;
    runs.iter().filter_map(move |run| {
        let (from, to) = (first.max(begins), end.min(begins + run.len_bytes()));
        let place = run.at() + (from.max(begins) - begins);
        begins += run.len_bytes();
        (from < to).then(|| (place, (to - from) as usize))
    })
}

/// A table that is being written to the device.
#[derive(Debug)]
pub(crate) struct TableSink {
    device: Arc<dyn BlockDevice>,
    space: SharedSpace,
    runs: Vec<Reservation>,
    /// Bytes that are not written yet.
    waiting: Vec<u8>,
    /// The number of bytes of the table that are written.
    written: u64,
    row_bytes: usize,
    /// Bytes written at a time: whole rows.
    write_bytes: usize,
}

impl TableSink {
    /// Reserves room for a table of at most `len_bytes_max`.
    pub(crate) fn new(device: Arc<dyn BlockDevice>, space: SharedSpace, len_bytes_max: u64) -> Result<Self> {
        let runs = Reservation::allocate_for_index(&space, len_bytes_max.div_ceil(BLOCK_BYTES).max(1))?;
        let row_bytes = device.row_bytes() as usize;
        let write_bytes = WRITE_BYTES.next_multiple_of(row_bytes);
        let waiting = Vec::with_capacity(write_bytes);
        Ok(Self { device, space, runs, waiting, written: 0, row_bytes, write_bytes })
    }

    /// Writes the rest, frees the room that is not needed, and returns the table. The table is not flushed.
    pub(crate) fn finish(mut self, len_bytes: u64) -> Result<TableSource> {
        self.waiting.resize(self.waiting.len().next_multiple_of(self.row_bytes), 0);
        self.write_waiting().map_err(|error| table_error(error.into()))?;
        let mut left = len_bytes.div_ceil(BLOCK_BYTES);
        let mut runs = Vec::new();
        for mut run in self.runs {
            let used = left.min(run.run().blocks);
            left -= used;
            if used > 0 {
                run.trim(used);
                runs.push(run.into_run());
            }
        }
        let entry = TableEntry { runs, len_bytes };
        Ok(TableSource::new(self.device, &entry, self.space))
    }

    /// Writes the collected bytes to the table's blocks.
    fn write_waiting(&mut self) -> io::Result<()> {
        let waiting = Buffer::gathered([&self.waiting[..]]);
        let runs: Vec<Run> = self.runs.iter().map(Reservation::run).collect();
        let mut done = 0;
        for (place, len) in places(&runs, self.written, self.written + waiting.len() as u64) {
            let written = self.device.write_at(place, &waiting[done..done + len]);
            written.map_err(|error| DeviceCause::error(place, false, &error))?;
            done += len;
        }
        if done < waiting.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.written += done as u64;
        self.waiting.clear();
        Ok(())
    }
}

impl Write for TableSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.write_bytes - self.waiting.len());
        self.waiting.extend_from_slice(&bytes[..taken]);
        if self.waiting.len() == self.write_bytes {
            self.write_waiting()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
