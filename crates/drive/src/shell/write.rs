//! Storing bytes: small objects go into the frame that names them, others into runs.

use super::Shell;
use super::keep::WON_MIN;
use crate::device::BLOCK_BYTES;
use crate::error::{Error, Result};
use crate::format::{Body, Extent, Piece, SUMMED_BYTES, run_blocks_of, sum_blocks_of};
use crate::machine::Machine;
use crate::space::{Hold, Loose, lock};
use crate::wire::sum;
use bytes::Bytes;
use std::sync::Arc;
use store::{ETag, Payload};

/// How much of a run is written at a time, at least.
const WRITE_BYTES: u64 = 2 << 20;

/// Where there is no run that is long enough, none shorter than this is taken, in blocks.
const RUN_BLOCKS_MIN: u64 = 17;

/// An object's bytes, stored but for the commit that names them.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) body: Body,
    /// The bytes, if they go into the frame.
    pub(crate) small: Option<Bytes>,
    /// On the runs, until a commit names them.
    pub(crate) holds: Vec<Hold>,
    /// What they are called, if not by the write.
    pub(crate) etag: Option<ETag>,
}

impl Stored {
    /// The same, called so.
    pub(crate) fn called(self, etag: Option<ETag>) -> Self {
        Self { etag, ..self }
    }

    pub(crate) fn of_extents(extents: Vec<Extent>, holds: Vec<Hold>) -> Self {
        Self { body: Body::Extents(extents), small: None, holds, etag: None }
    }

    /// These bytes in a frame. In memory of their own: they may be kept, and what a connection reads into is longer.
    fn small(bytes: &Payload) -> Self {
        let joined = Bytes::from(bytes.pieces().concat());
        let sums = joined.chunks(SUMMED_BYTES as usize).map(sum).collect();
        let body = Body::Piece(Piece { at: 0, len: joined.len() as u32, sums });
        Self { body, small: Some(joined), holds: Vec::new(), etag: None }
    }
}

impl Shell {
    /// Stores an object's bytes, as suits their length.
    pub(crate) async fn store(self: &Arc<Self>, bytes: Payload) -> Result<Stored> {
        let piece_bytes_max = self.machine.piece_bytes_max();
        self.store_as(bytes, piece_bytes_max).await
    }

    /// Stores bytes: in a frame, if they are no more than these.
    pub(crate) async fn store_as(self: &Arc<Self>, bytes: Payload, piece_bytes_max: u64) -> Result<Stored> {
        self.machine.check_writable()?;
        match bytes.len() {
            0 => Ok(Stored::of_extents(Vec::new(), Vec::new())),
            len if len <= piece_bytes_max => {
                self.make_room(len).await?;
                Ok(Stored::small(&bytes))
            }
            _ => self.store_in_runs(bytes).await,
        }
    }

    /// Stores bytes in runs, whatever their length.
    pub(crate) async fn store_in_runs(self: &Arc<Self>, bytes: Payload) -> Result<Stored> {
        self.machine.check_writable()?;
        let shell = self.clone();
        // To its end, also if nobody waits for it any more: a run whose write is under way is not free.
        let written = tokio::spawn(async move { shell.write_runs(&bytes).await });
        written.await.unwrap_or_else(|error| Err(Error::Failed(format!("a write was given up: {error}"))))
    }

    async fn write_runs(&self, bytes: &Payload) -> Result<Stored> {
        let (mut extents, mut loose) = (Vec::new(), Vec::new());
        let mut done = 0;
        while done < bytes.len() {
            let (extent, run) = self.machine.run_for(bytes.len() - done)?;
            loose.push(run);
            self.write_run(extent, bytes, done).await?;
            done += extent.len_bytes;
            extents.push(extent);
        }
        Ok(Stored::of_extents(extents, vec![Hold::runs(loose, &self.machine.space)]))
    }

    /// Writes as many of the bytes as the extent has, and behind them their sums.
    async fn write_run(&self, extent: Extent, bytes: &Payload, from: u64) -> Result<()> {
        let len = extent.len_bytes;
        let mut at = extent.run.at();
        let step = self.write_bytes();
        let mut sums = Vec::with_capacity(len.div_ceil(SUMMED_BYTES) as usize * 4);
        let mut done = 0;
        while done < len {
            let part = (len - done).min(step);
            let slice = bytes.slice(from + done..from + done + part);
            let sum_blocks = if done + part == len { sum_blocks_of(len) } else { 0 };
            let capacity_bytes = part.next_multiple_of(BLOCK_BYTES) + sum_blocks * BLOCK_BYTES;
            let mut buffer =
                self.machine.buffers.fill(capacity_bytes as usize, self.machine.geometry.row_bytes());
            slice.pieces().iter().for_each(|piece| buffer.push(piece));
            buffer.chunks(SUMMED_BYTES as usize).for_each(|chunk| sums.extend(sum(chunk).to_le_bytes()));
            done += part;
            if done == len {
                buffer.pad();
                buffer.push(&sums);
            }
            let buffer = buffer.finish();
            let written = buffer.len() as u64;
            self.io.write(at, &[buffer.into()]).await.map_err(Error::device(at))?;
            at += written;
        }
        Ok(())
    }

    /// How much of a run is written at a time: whole rows, and all that a sum is of.
    fn write_bytes(&self) -> u64 {
        let rows_of_sums = self.machine.geometry.row_blocks * SUMMED_BYTES;
        WRITE_BYTES.next_multiple_of(rows_of_sums)
    }

    /// Waits until zones were cleaned where the log is about to have no room for small objects. `Full` if that wins nothing.
    async fn make_room(&self, len: u64) -> Result<()> {
        while !self.machine.has_room_for(len) {
            let _one_at_a_time = self.keeping.lock().await;
            if !self.machine.has_room_for(len) && !self.clean_one(WON_MIN).await? {
                return Err(Error::Full);
            }
        }
        Ok(())
    }
}

impl Machine {
    /// Whether the log has room for small objects, and still for what frees space.
    fn has_room_for(&self, len: u64) -> bool {
        lock(&self.space).free_zones() > self.zones_reserved()
            || self.room_in_head() > 2 * len + self.frame_bytes_max()
    }

    /// A run for so many bytes, or for the first of them where there is none that is long enough.
    fn run_for(&self, len_bytes: u64) -> Result<(Extent, Loose)> {
        let wanted = run_blocks_of(len_bytes);
        let mut run =
            Loose::allocate(&self.space, wanted, RUN_BLOCKS_MIN.min(wanted), self.zones_reserved())?;
        let len_bytes = data_bytes_in(run.run().blocks).min(len_bytes);
        run.trim(run_blocks_of(len_bytes));
        Ok((Extent::whole(run.run(), len_bytes), run))
    }
}

/// How many bytes of data a run of so many blocks holds beside their sums.
fn data_bytes_in(blocks: u64) -> u64 {
    let mut data_blocks = blocks - sum_blocks_of(blocks * BLOCK_BYTES);
    while run_blocks_of((data_blocks + 1) * BLOCK_BYTES) <= blocks {
        data_blocks += 1;
    }
    data_blocks * BLOCK_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_holds_what_it_is_said_to() {
        for blocks in [2, 3, 17, 18, 1025, 1026, 16_384, 16_386, 20_000] {
            let data_bytes = data_bytes_in(blocks);
            assert!(run_blocks_of(data_bytes) <= blocks, "{blocks}");
            assert!(run_blocks_of(data_bytes + 1) > blocks, "{blocks}");
        }
    }
}
