//! Bytes on their way into runs: copied to memory that the device takes while they are in the processor's cache, summed there, and
//! written as soon as there are enough of them.

use super::cache::{KEPT_BYTES_MAX, Stretch};
use super::{Shell, Stored};
use crate::device::{BLOCK_BYTES, Filling};
use crate::error::{Error, Result};
use crate::format::{Extent, SUMMED_BYTES, run_blocks_of, sum_blocks_of};
use crate::machine::Machine;
use crate::space::{Hold, Loose, Pins};
use crate::wire::Sum;
use bytes::Bytes;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How much of a run is written at a time, in bytes: what the device takes at once, and what is read and kept at once.
const WRITE_BYTES: u64 = KEPT_BYTES_MAX;

/// Writes of one writer under way at the same time, while the next one is filled.
const WRITES_UNDER_WAY: usize = 2;

/// A run for bytes of which nobody knows how many come, in bytes; what they do not take is given back.
const UNKNOWN_BYTES: u64 = 8 << 20;

/// No run is longer, in bytes: who is slow does not hold the space of all that is to come.
const RUN_BYTES_MAX: u64 = 64 << 20;

/// Where there is no run that is long enough, none shorter than this is taken, in blocks.
const RUN_BLOCKS_MIN: u64 = 17;

/// Writers' buffers that are filled or written at the same time, of 1 MiB each, or a little more on an array.
pub(super) const PLACES: usize = 64;

/// Others give their places back as soon as they have sent so much.
const PLACE_WITHIN: Duration = Duration::from_secs(60);

/// Bytes on their way into runs. Dropped, what it took is free again when its writes have ended.
pub(crate) struct RunWriter {
    shell: Arc<Shell>,
    /// As far as anybody knows.
    bytes_to_come: u64,
    /// By which its bytes are known in memory until a write names them.
    number: u64,
    /// Of whom a buffer needs a place: who waits for somebody else's bytes.
    places: Option<Arc<Semaphore>>,
    open: Option<OpenRun>,
    extents: Vec<Extent>,
    runs: Vec<Loose>,
    under_way: VecDeque<JoinHandle<Result<()>>>,
}

/// A run that is being written, from its beginning on.
struct OpenRun {
    run: Loose,
    data_bytes_max: u64,
    data_bytes: u64,
    sums: Sums,
    written_bytes: u64,
    filling: Option<(Filling, Option<OwnedSemaphorePermit>)>,
}

impl Shell {
    /// A writer of bytes that somebody has.
    pub(super) fn run_writer(self: &Arc<Self>, len_bytes: u64) -> Result<RunWriter> {
        self.machine.check_writable()?;
        Ok(RunWriter {
            shell: self.clone(),
            bytes_to_come: len_bytes,
            number: self.machine.next_write(),
            places: None,
            open: None,
            extents: Vec::new(),
            runs: Vec::new(),
            under_way: VecDeque::new(),
        })
    }

    /// A writer of bytes that come from elsewhere, as slowly as they like: memory for them is bounded for all together.
    pub(crate) fn patient_run_writer(self: &Arc<Self>, len_bytes: Option<u64>) -> Result<RunWriter> {
        Ok(RunWriter { places: Some(self.places.clone()), ..self.run_writer(len_bytes.unwrap_or(0))? })
    }
}

impl RunWriter {
    /// Adds bytes. Waits for the device, if it is behind.
    pub(crate) async fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let open = match &mut self.open {
                Some(open) => open,
                none => none.insert(self.shell.machine.open_run(self.bytes_to_come)?),
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
        Ok(())
    }

    /// The bytes, stored but for the commit that names them.
    pub(crate) async fn finish(mut self) -> Result<Stored> {
        self.close_run().await?;
        self.settle(0).await?;
        let hold = Hold::runs(self.runs, &self.shell.machine.space);
        Ok(Stored::of_extents(self.extents, vec![hold]).known_as(self.number))
    }

    /// Behind a run's data lie its sums; what it has beyond them is given back.
    async fn close_run(&mut self) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let padding = open.data_bytes.next_multiple_of(BLOCK_BYTES) - open.data_bytes;
        let sums = std::mem::take(&mut open.sums).finish();
        self.append(&[0; BLOCK_BYTES as usize][..padding as usize]).await?;
        self.append(&sums).await?;
        self.write_out().await?;
        if let Some(OpenRun { mut run, data_bytes, .. }) = self.open.take() {
            run.trim(run_blocks_of(data_bytes));
            self.bytes_to_come = self.bytes_to_come.saturating_sub(data_bytes);
            self.extents.push(Extent::whole(run.run(), data_bytes));
            self.runs.push(run);
        }
        Ok(())
    }

    /// Adds to the open run, writing what is full.
    async fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while let Some(open) = &mut self.open
            && !bytes.is_empty()
        {
            let (filling, _) = match &mut open.filling {
                Some(filling) => filling,
                none => {
                    let place = place(self.places.as_ref()).await?;
                    none.insert((
                        self.shell.machine.filling(open.run.run().blocks, open.written_bytes),
                        place,
                    ))
                }
            };
            let (now, later) = bytes.split_at(filling.room().min(bytes.len()));
            filling.push(now);
            let is_full = filling.room() == 0;
            bytes = later;
            if is_full {
                self.write_out().await?;
            }
        }
        Ok(())
    }

    /// Writes what was filled, to its end also if nobody waits for it any more: until then nobody else gets the blocks.
    async fn write_out(&mut self) -> Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let Some((filling, place)) = open.filling.take() else { return Ok(()) };
        let buffer = Bytes::from(filling.finish());
        let (from, len) = (open.written_bytes, buffer.len() as u64);
        let at = open.run.run().at() + from;
        open.written_bytes += len;
        if let Some(cache) = &self.shell.cache {
            // Behind the data are sums.
            let data = buffer.slice(..open.data_bytes.saturating_sub(from).min(len) as usize);
            let (write, source) = (self.number, self.extents.len() as u32);
            cache.insert_data(Stretch { write, source, len: data.len() as u32, from }, data);
        }
        let mut pins = Pins::new(&self.shell.machine.space);
        pins.run(open.run.run());
        let io = self.shell.io.clone();
        self.under_way.push_back(tokio::spawn(async move {
            let written = io.write(at, &[buffer]).await;
            drop((pins, place));
            written.map_err(Error::device(at))
        }));
        self.settle(WRITES_UNDER_WAY).await
    }

    /// Waits until no more writes than this are under way.
    async fn settle(&mut self, writes: usize) -> Result<()> {
        while self.under_way.len() > writes
            && let Some(first) = self.under_way.pop_front()
        {
            first
                .await
                .unwrap_or_else(|error| Err(Error::Failed(format!("a write was given up: {error}"))))?;
        }
        Ok(())
    }
}

/// The sums of a run's data, as it comes.
#[derive(Default)]
struct Sums {
    done: Vec<u8>,
    /// Of the bytes since the last multiple of [`SUMMED_BYTES`], and how many those are.
    next: (Sum, u64),
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

/// A place among those for whom one is needed.
async fn place(places: Option<&Arc<Semaphore>>) -> Result<Option<OwnedSemaphorePermit>> {
    let Some(places) = places else { return Ok(None) };
    match timeout(PLACE_WITHIN, places.clone().acquire_owned()).await {
        Ok(Ok(place)) => Ok(Some(place)),
        _ => Err(Error::Busy),
    }
}

impl fmt::Debug for RunWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunWriter").field("extents", &self.extents).finish_non_exhaustive()
    }
}

impl Machine {
    /// A run for so many bytes, or for the first of them.
    fn open_run(&self, bytes_to_come: u64) -> Result<OpenRun> {
        let wanted_bytes = if bytes_to_come == 0 { UNKNOWN_BYTES } else { bytes_to_come.min(RUN_BYTES_MAX) };
        let wanted = run_blocks_of(wanted_bytes);
        let run = Loose::allocate(&self.space, wanted, RUN_BLOCKS_MIN.min(wanted), self.zones_reserved())?;
        let data_bytes_max = data_bytes_in(run.run().blocks).min(wanted_bytes);
        Ok(OpenRun {
            run,
            data_bytes_max,
            data_bytes: 0,
            sums: Sums::default(),
            written_bytes: 0,
            filling: None,
        })
    }

    /// Memory for what a run of so many blocks has next, in whole rows.
    fn filling(&self, run_blocks: u64, written_bytes: u64) -> Filling {
        let row_bytes = self.geometry.row_bytes();
        let step = WRITE_BYTES.next_multiple_of(row_bytes);
        let left = run_blocks * BLOCK_BYTES - written_bytes;
        self.buffers.fill(left.min(step) as usize, row_bytes)
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
    use crate::wire::sum;

    #[test]
    fn sums_are_the_same_however_the_bytes_come() {
        let bytes: Vec<u8> = (0..3 * SUMMED_BYTES + 1000).map(|at| (at % 251) as u8).collect();
        let expected: Vec<u8> =
            bytes.chunks(SUMMED_BYTES as usize).flat_map(|chunk| sum(chunk).to_le_bytes()).collect();
        for step in [1, 1000, 65_535, 65_536, 65_537, 1 << 20] {
            let mut sums = Sums::default();
            bytes.chunks(step).for_each(|piece| sums.push(piece));
            assert_eq!(sums.finish(), expected, "{step}");
        }
        assert!(Sums::default().finish().is_empty());
    }

    #[test]
    fn a_run_holds_what_it_is_said_to() {
        for blocks in [2, 3, 17, 18, 1025, 1026, 16_384, 16_386, 20_000] {
            let data_bytes = data_bytes_in(blocks);
            assert!(run_blocks_of(data_bytes) <= blocks, "{blocks}");
            assert!(run_blocks_of(data_bytes + 1) > blocks, "{blocks}");
        }
    }
}
