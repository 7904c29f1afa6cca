//! Reconstruction of objects' bytes: reads bytes with wrong checksums again, each time without one of the devices below the drive.

use super::Frontend;
use super::read::{sums_from, sums_in, sums_match};
use crate::device::{BLOCK_BYTES, BlockDevice, Buffer};
use crate::error::{Error, Result};
use crate::format::{RunSlice, sum_blocks_of};
use bytes::Bytes;
use std::ops::Range;

impl Frontend {
    /// Reads blocks again until the bytes `data` in them match `sums`.
    pub(super) async fn reconstruct_data(
        &self,
        at: u64,
        len_bytes: u64,
        data: Range<usize>,
        sums: &[u32],
    ) -> Result<Buffer> {
        let damaged = Error::damaged("an object's data", at + data.start as u64);
        let sums = sums.to_vec();
        let is_right = move |blocks: &[u8]| sums_match(&blocks[data.clone()], &sums);
        let found = self.io.read_reconstructed(at, len_bytes, is_right).await.map_err(Error::device(at))?;
        found.ok_or(damaged)
    }

    /// Reads data of a run and its checksums again until they match, without the same device in both reads: one device may have both
    /// wrong. The range covers whole checksums, or ends with the data.
    pub(super) async fn reconstruct_slice(
        &self,
        slice: &RunSlice,
        range: Range<u64>,
        damaged: Error,
    ) -> Result<Bytes> {
        let (device, slice, len) = (self.io.device(), *slice, (range.end - range.start) as usize);
        let look = move || {
            Ok((0..device.ways()).find_map(|way| read_data_and_sums(&*device, way, &slice, range.clone())))
        };
        let found = store::blocking(look).await.map_err(Error::device(slice.run.at()))?;
        Ok(Bytes::from(found.ok_or(damaged)?).slice(..len))
    }
}

/// Reads data of a run and its checksums by one alternative of the device, and repairs both on the device. Returns `None` if they do
/// not match.
fn read_data_and_sums(
    device: &dyn BlockDevice,
    way: usize,
    slice: &RunSlice,
    range: Range<u64>,
) -> Option<Buffer> {
    let read = |at: u64, bytes: u64| {
        let mut buffer = Buffer::zeroed(bytes.next_multiple_of(BLOCK_BYTES) as usize);
        device.read_without(way, at, &mut buffer).ok().map(|()| buffer)
    };
    let sums_at = slice.sums_at();
    let sums = read(sums_at, sum_blocks_of(slice.data_bytes) * BLOCK_BYTES)?;
    let (at, bytes) = (slice.run.at() + range.start, range.end - range.start);
    let data = read(at, bytes)?;
    if !sums_match(&data[..bytes as usize], sums_from(&sums_in(&sums, slice), &range)) {
        return None;
    }
    for (at, right) in [(sums_at, &sums), (at, &data)] {
        if let Err(error) = device.mend(way, at, right.len() as u64) {
            tracing::warn!(at, %error, "damaged blocks were reconstructed but could not be rewritten");
        }
    }
    Some(data)
}
