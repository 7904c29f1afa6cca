//! Run writer: writes a stream of bytes into runs. Bytes are copied to aligned memory and summed while they are in the processor's
//! cache, and written as soon as a buffer is full.

use super::read_cache::{CACHED_BYTES_MAX, CachedRange};
use super::{Frontend, Stored};
use crate::codec::Crc32c;
use crate::device::{BLOCK_BYTES, BufferBuilder};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::format::{RunSlice, SUMMED_BYTES, run_blocks_of, sum_blocks_of};
use crate::space::{Hold, Pins, Reservation};
use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Length of one write to a run, in bytes: also the length of one request to the device, of one read, and of one cache entry.
const WRITE_BYTES: u64 = CACHED_BYTES_MAX;

/// Writes of one writer in flight while the next buffer is filled.
const WRITES_IN_FLIGHT: usize = 2;

/// Length of a run for bytes of unknown number, in bytes. The unused end is freed.
const UNKNOWN_BYTES: u64 = 8 << 20;

/// The longest run, in bytes: a slow writer does not reserve the space of its whole object.
const RUN_BYTES_MAX: u64 = 64 << 20;

/// If no run is long enough, a shorter one is taken, of at least this many blocks.
const RUN_BLOCKS_MIN: u64 = 17;

/// Buffers of streaming writers filled or written at the same time, 1 MiB each, slightly more on an array.
pub(super) const BUFFER_PERMITS: usize = 64;

/// Longest wait for a buffer. Other writers release theirs once they have sent 1 MiB.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Writes bytes into runs. If it is dropped, the runs are freed once its writes have ended.
pub(crate) struct RunWriter {
    frontend: Arc<Frontend>,
    /// Expected number of bytes; 0 if unknown.
    expected_bytes: u64,
    /// The temporary number of the bytes in the read cache, until a write is committed.
    number: u64,
    /// Permits for buffers; `None` for a writer whose bytes are in memory already.
    buffer_permits: Option<Arc<Semaphore>>,
    open: Option<OpenRun>,
    slices: Vec<RunSlice>,
    /// Runs that nothing is appended to anymore.
    runs: Vec<Reservation>,
    /// Writes to the device that have not been waited for, the oldest first.
    in_flight: VecDeque<JoinHandle<Result<()>>>,
    /// Whether every push has ended without an error. After a push that failed or was cancelled, bytes are missing.
    is_complete: bool,
}

/// The run being written, from its beginning on.
struct OpenRun {
    run: Reservation,
    /// Bytes of content for which the run has space, without padding and checksums.
    data_bytes_max: u64,
    /// Bytes of content in the run so far, without padding and checksums.
    data_bytes: u64,
    sums: Sums,
    /// Bytes from the beginning of the run that were handed to the device.
    written_bytes: u64,
    builder: Option<(BufferBuilder, Option<OwnedSemaphorePermit>)>,
}

impl Frontend {
    /// Makes a writer for bytes that are in memory already.
    pub(super) fn run_writer(self: &Arc<Self>, len_bytes: u64) -> Result<RunWriter> {
        self.engine.check_writable()?;
        Ok(RunWriter {
            frontend: self.clone(),
            expected_bytes: len_bytes,
            number: self.engine.next_write(),
            buffer_permits: None,
            open: None,
            slices: Vec::new(),
            runs: Vec::new(),
            in_flight: VecDeque::new(),
            is_complete: true,
        })
    }

    /// Makes a writer for bytes that arrive at any speed. The memory of all such writers together is bounded.
    pub(crate) fn streaming_run_writer(self: &Arc<Self>, len_bytes: Option<u64>) -> Result<RunWriter> {
        Ok(RunWriter {
            buffer_permits: Some(self.buffer_permits.clone()),
            ..self.run_writer(len_bytes.unwrap_or(0))?
        })
    }
}

impl RunWriter {
    /// Adds bytes. Waits while the device is behind, and for memory. Fails with [`Error::Busy`] if no memory becomes
    /// free in time, and with [`Error::Full`] if the drive is full.
    pub(crate) async fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        let was_complete = std::mem::take(&mut self.is_complete);
        while !bytes.is_empty() {
            let open = match &mut self.open {
                Some(open) => open,
                none => none.insert(OpenRun::begin(&self.frontend.engine, self.expected_bytes)?),
            };
            let room = open.data_bytes_max - open.data_bytes;
            let (now, later) = bytes.split_at(room.min(bytes.len() as u64) as usize);
            open.data_bytes += now.len() as u64;
            open.sums.push(now);
            let is_full = open.data_bytes == open.data_bytes_max;
            self.append(now).await?;
            if is_full {
                self.close_run().await?;
            }
            bytes = later;
        }
        self.is_complete = was_complete;
        Ok(())
    }

    /// Writes the rest and returns the stored bytes, which a commit has yet to name. Fails if a push failed or was cancelled.
    pub(crate) async fn finish(mut self) -> Result<Stored> {
        if !self.is_complete {
            return Err(Error::Aborted("a piece of the object was not written".to_owned()));
        }
        self.close_run().await?;
        self.wait_for_writes(0).await?;
        let hold = Hold::runs(self.runs, &self.frontend.engine.space);
        Ok(Stored::of_slices(self.slices, vec![hold]).with_cache_number(self.number))
    }

    /// Writes the checksums behind the data of the open run, and frees the rest of the run.
    async fn close_run(&mut self) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let padding = open.data_bytes.next_multiple_of(BLOCK_BYTES) - open.data_bytes;
        let sums = std::mem::take(&mut open.sums).finish();
        self.append(&[0; BLOCK_BYTES as usize][..padding as usize]).await?;
        self.append(&sums).await?;
        self.write_out().await?;
        if let Some(OpenRun { mut run, data_bytes, .. }) = self.open.take() {
            run.trim(run_blocks_of(data_bytes));
            self.expected_bytes = self.expected_bytes.saturating_sub(data_bytes);
            self.slices.push(RunSlice::whole(run.run(), data_bytes));
            self.runs.push(run);
        }
        Ok(())
    }

    /// Adds bytes to the open run, and writes full buffers.
    async fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while let Some(open) = &mut self.open
            && !bytes.is_empty()
        {
            let (mut builder, permit) = match open.builder.take() {
                Some(builder) => builder,
                None => {
                    let permit = acquire_permit(self.buffer_permits.as_ref()).await?;
                    (open.next_buffer(&self.frontend.engine), permit)
                }
            };
            let (now, later) = bytes.split_at(builder.room().min(bytes.len()));
            builder.push(now);
            let is_full = builder.room() == 0;
            open.builder = Some((builder, permit));
            bytes = later;
            if is_full {
                self.write_out().await?;
            }
        }
        Ok(())
    }

    /// Starts writing the current buffer. The write runs to its end even if the writer is dropped; until then the run is pinned.
    async fn write_out(&mut self) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let Some((builder, permit)) = open.builder.take() else { return Ok(()) };
        let buffer = Bytes::from(builder.finish());
        let (from, len) = (open.written_bytes, buffer.len() as u64);
        let at = open.run.run().at() + from;
        open.written_bytes += len;
        if let Some(cache) = &self.frontend.cache {
            // Behind the data lie the checksums, which are not cached.
            let data = buffer.slice(..open.data_bytes.saturating_sub(from).min(len) as usize);
            let (write, source) = (self.number, self.slices.len() as u32);
            cache.insert_data(CachedRange { write, source, len: data.len() as u32, from }, data);
        }
        let mut pins = Pins::new(&self.frontend.engine.space);
        pins.pin_run(open.run.run());
        let io = self.frontend.io.clone();
        self.in_flight.push_back(tokio::spawn(async move {
            let written = io.write(at, &[buffer]).await;
            drop((pins, permit));
            written.map_err(Error::device(at))
        }));
        self.wait_for_writes(WRITES_IN_FLIGHT).await
    }

    /// Waits until at most `writes` are in flight.
    async fn wait_for_writes(&mut self, writes: usize) -> Result<()> {
        while self.in_flight.len() > writes
            && let Some(first) = self.in_flight.pop_front()
        {
            first.await.unwrap_or_else(|error| Err(Error::aborted(&error)))?;
        }
        Ok(())
    }
}

/// The checksums of a run's data, computed as the data arrives.
#[derive(Default)]
struct Sums {
    /// The completed checksums, encoded.
    done: Vec<u8>,
    /// The checksum of the bytes since the last multiple of [`SUMMED_BYTES`], and their number.
    next: (Crc32c, u64),
}

impl Sums {
    fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (sum, summed_bytes) = &mut self.next;
            let (now, later) = bytes.split_at(bytes.len().min((SUMMED_BYTES - *summed_bytes) as usize));
            sum.add(now);
            *summed_bytes += now.len() as u64;
            bytes = later;
            if *summed_bytes == SUMMED_BYTES {
                self.end_one();
            }
        }
    }

    /// Ends the checksum in progress and begins the next.
    fn end_one(&mut self) {
        let (sum, _) = std::mem::take(&mut self.next);
        self.done.extend(sum.value().to_le_bytes());
    }

    fn finish(mut self) -> Vec<u8> {
        if self.next.1 > 0 {
            self.end_one();
        }
        self.done
    }
}

/// Waits for a buffer permit, if the writer needs one.
async fn acquire_permit(buffer_permits: Option<&Arc<Semaphore>>) -> Result<Option<OwnedSemaphorePermit>> {
    let Some(buffer_permits) = buffer_permits else { return Ok(None) };
    match timeout(PERMIT_TIMEOUT, buffer_permits.clone().acquire_owned()).await {
        Ok(Ok(permit)) => Ok(Some(permit)),
        _ => Err(Error::Busy),
    }
}

impl fmt::Debug for RunWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunWriter").field("slices", &self.slices).finish_non_exhaustive()
    }
}

impl OpenRun {
    /// Reserves a run for the expected bytes, or for the first of them.
    fn begin(engine: &Engine, expected_bytes: u64) -> Result<Self> {
        let wanted_bytes =
            if expected_bytes == 0 { UNKNOWN_BYTES } else { expected_bytes.min(RUN_BYTES_MAX) };
        let wanted = run_blocks_of(wanted_bytes);
        let least = RUN_BLOCKS_MIN.min(wanted);
        let run = Reservation::allocate(&engine.space, wanted, least, engine.zones_reserved())?;
        let data_bytes_max = data_bytes_in(run.run().blocks).min(wanted_bytes);
        Ok(Self {
            run,
            data_bytes_max,
            data_bytes: 0,
            sums: Sums::default(),
            written_bytes: 0,
            builder: None,
        })
    }

    /// Returns a buffer for the next write to the run, in whole rows.
    fn next_buffer(&self, engine: &Engine) -> BufferBuilder {
        let row_bytes = engine.geometry.row_bytes();
        let step = WRITE_BYTES.next_multiple_of(row_bytes);
        let left = self.run.run().len_bytes() - self.written_bytes;
        engine.buffers.fill(left.min(step) as usize, row_bytes)
    }
}

/// Returns the number of data bytes that fit into a run, with their checksums.
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
    use crate::codec::crc32c;

    #[test]
    fn checksums_do_not_depend_on_how_bytes_are_split() {
        let bytes: Vec<u8> = (0..3 * SUMMED_BYTES + 1000).map(|at| (at % 251) as u8).collect();
        let expected: Vec<u8> =
            bytes.chunks(SUMMED_BYTES as usize).flat_map(|chunk| crc32c(chunk).to_le_bytes()).collect();
        for step in [1, 1000, 65_535, 65_536, 65_537, 1 << 20] {
            let mut sums = Sums::default();
            bytes.chunks(step).for_each(|piece| sums.push(piece));
            assert_eq!(sums.finish(), expected, "{step}");
        }
        assert!(Sums::default().finish().is_empty());
    }

    #[test]
    fn a_run_holds_exactly_its_computed_capacity() {
        for blocks in [2, 3, 17, 18, 1025, 1026, 16_384, 16_386, 20_000] {
            let data_bytes = data_bytes_in(blocks);
            assert!(run_blocks_of(data_bytes) <= blocks, "{blocks}");
            assert!(run_blocks_of(data_bytes + 1) > blocks, "{blocks}");
        }
    }
}
