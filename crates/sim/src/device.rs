//! A simulated block device in memory with power cuts, torn writes, bit flips and I/O errors, all determined by seeds.
//!
//! Owns the faults that a real device may have, and is stricter than a real one: overlapping calls of which one is a write
//! panic, where a real device would return either content. All operations are recorded.

mod faults;
mod medium;

use drive::device::{BLOCK_BYTES, BlockDevice, check_read, check_write};
use faults::Faults;
use medium::{Medium, WriteId};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::Entropy;
use tokio::runtime::{Handle, RuntimeFlavor};

/// A recorded operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The kind of the operation.
    pub kind: OperationKind,
    /// The offset in bytes; 0 for a flush.
    pub at: u64,
    /// The length in bytes; 0 for a flush.
    pub len: u64,
}

/// The kinds of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are the seam's calls")]
pub enum OperationKind {
    Read,
    Write,
    Flush,
}

/// A device in memory. Clones share the device; a [`fork`](Self::fork) is an independent copy.
#[derive(Debug, Clone)]
pub struct SimDevice {
    len_bytes: u64,
    row_bytes: u64,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Clone, Default)]
struct State {
    medium: Medium,
    faults: Faults,
    in_flight: Vec<Operation>,
    operations: Vec<Operation>,
    fired: Fired,
}

/// Fault counts: how often a fault of each kind affected a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fired {
    /// Reads that failed at a sector that stays unreadable until it is written.
    pub unreadable: u64,
    /// Reads that failed once.
    pub passing: u64,
    /// Reads that returned a flipped bit.
    pub rotten: u64,
    /// Blocks that a power cut made unreadable.
    pub spoiled: u64,
}

impl Fired {
    /// Adds the counts of another device.
    pub fn add(&mut self, other: Self) {
        self.unreadable += other.unreadable;
        self.passing += other.passing;
        self.rotten += other.rotten;
        self.spoiled += other.spoiled;
    }
}

impl SimDevice {
    /// Makes a device of zeros without faults.
    pub fn new(len_bytes: u64) -> Self {
        Self::in_rows(len_bytes, BLOCK_BYTES)
    }

    /// Makes a device that accepts writes of whole rows of `row_bytes` only.
    pub fn in_rows(len_bytes: u64, row_bytes: u64) -> Self {
        let len_bytes = len_bytes - len_bytes % row_bytes;
        Self { len_bytes, row_bytes, state: Arc::default() }
    }

    /// Copies the device in its current state, for example to try several outcomes of one power cut.
    pub fn fork(&self) -> Self {
        let mut state = self.lock().clone();
        state.faults = state.faults.with_own_power();
        Self { state: Arc::new(Mutex::new(state)), ..*self }
    }

    /// Makes a device of zeros that shares this one's power supply.
    pub fn beside(&self, len_bytes: u64) -> Self {
        let faults = self.lock().faults.with_shared_power();
        let device = Self::new(len_bytes);
        device.lock().faults = faults;
        device
    }

    /// Cuts the power and restores it. Flushed writes survive. For each other write the seed determines whether all, some or none of its
    /// sectors survive, and the order of writes to the same place. Configured faults remain, except for
    /// [`cut_power_after`](Self::cut_power_after).
    pub fn crash(&self, seed: u64) {
        self.crash_spoiling(seed, 0);
    }

    /// Like [`crash`](Self::crash); in addition one in `spoils` blocks that were being changed is unreadable until it is written again.
    pub fn crash_spoiling(&self, seed: u64, spoils: u64) {
        let mut state = self.lock();
        assert!(state.in_flight.is_empty(), "a crash while {:?} are in flight", state.in_flight);
        let spoiled = state.medium.crash(seed, spoils);
        state.fired.spoiled += spoiled;
        state.faults.restore_power();
    }

    /// Makes the blocks of a range unreadable until they are written.
    pub fn spoil(&self, range: Range<u64>) {
        let mut state = self.lock();
        (range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES))
            .for_each(|block| state.medium.spoil(block));
    }

    /// Makes blocks that were never written unreadable until they are written; most of them directly follow a written block.
    pub fn spoil_unwritten(&self, seed: u64, blocks: u64) {
        let entropy = Entropy::new(seed);
        let mut state = self.lock();
        let all = self.len_bytes / BLOCK_BYTES;
        for _ in 0..blocks {
            let (from, is_behind) = (entropy.below(all), entropy.below(4) > 0);
            let mut candidates = (from..all).filter(|&block| {
                !state.medium.was_written(block)
                    && (!is_behind || block > 0 && state.medium.was_written(block - 1))
            });
            if let Some(block) = candidates.next() {
                state.medium.spoil(block);
            }
        }
    }

    /// Makes one in `one_in` reads fail, as the seed determines. A repeated read may succeed.
    pub fn fail_reads_at_random(&self, seed: u64, one_in: u64) {
        self.lock().faults.reads_at_random(seed, one_in);
    }

    /// Returns the fault counts so far.
    pub fn fired(&self) -> Fired {
        self.lock().fired
    }

    /// Flips one bit in the range, in flushed and unflushed data, as bit rot does. Returns the offset of the changed byte.
    pub fn flip(&self, seed: u64, range: Range<u64>) -> u64 {
        assert!(
            range.start < range.end && range.end <= self.len_bytes,
            "the range {range:?} is empty or beyond the device"
        );
        self.lock().medium.flip(seed, range)
    }

    /// Makes reads that touch the range fail.
    pub fn fail_reads(&self, range: Range<u64>) {
        self.lock().faults.reads.push(range);
    }

    /// Makes writes that touch the range fail. They may write some of their sectors.
    pub fn fail_writes(&self, range: Range<u64>) {
        self.lock().faults.writes.push(range);
    }

    /// Makes one in `one_in` operations fail, as the seed determines. Writes before a failed flush are in doubt until they are written
    /// again: as on a real device, no later flush makes them durable.
    pub fn fail_at_random(&self, seed: u64, one_in: u64) {
        self.lock().faults.at_random(seed, one_in);
    }

    /// Cuts the power after this many more operations: all calls fail until [`crash`](Self::crash). The write at the cut may leave any
    /// of its sectors.
    pub fn cut_power_after(&self, operations: u64) {
        self.lock().faults.cut_power_after(operations);
    }

    /// Makes all calls fail permanently.
    pub fn break_down(&self) {
        self.lock().faults.broken = true;
    }

    /// Removes all configured faults, and restores the power.
    pub fn heal(&self) {
        let mut state = self.lock();
        state.faults = state.faults.without_faults();
    }

    /// Returns the operations since the last call of this function, in order.
    pub fn take_operations(&self) -> Vec<Operation> {
        std::mem::take(&mut self.lock().operations)
    }

    /// Returns the number of writes that a crash may undo.
    pub fn unflushed(&self) -> usize {
        self.lock().medium.unflushed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, kind: OperationKind, at: u64, bytes: usize) -> InFlight<'_> {
        let operation = Operation { kind, at, len: bytes as u64 };
        let mut state = self.lock();
        let conflict = state.in_flight.iter().find(|other| operation.conflicts(other)).copied();
        assert!(conflict.is_none(), "{operation:?} while {conflict:?} is under way");
        state.operations.push(operation);
        state.in_flight.push(operation);
        let verdict = state.faults.decide(&operation);
        let written = state.medium.next_write();
        drop(state);
        if !is_single_threaded() {
            // Let other threads call now, so that conflicts are found.
            std::thread::yield_now();
        }
        InFlight { device: self, operation, verdict, written }
    }
}

impl BlockDevice for SimDevice {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        check_read(self.len_bytes, at, into.len())?;
        let read = self.begin(OperationKind::Read, at, into.len());
        let mut state = self.lock();
        state.fired.passing += u64::from(matches!(read.verdict, Verdict::FailsOnce));
        let Verdict::Done = read.verdict else {
            drop(state);
            return read.verdict.outcome();
        };
        let blocks = at / BLOCK_BYTES..(at + into.len() as u64) / BLOCK_BYTES;
        let (unreadable, flipped) = state.medium.count_bad_blocks(blocks);
        state.fired.unreadable += u64::from(unreadable > 0);
        state.fired.rotten += u64::from(flipped > 0 && unreadable == 0);
        if unreadable > 0 {
            drop(state);
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        state.medium.read(at, into);
        drop(state);
        Ok(())
    }

    fn write_at(&self, at: u64, from: &[u8]) -> io::Result<()> {
        check_write(self.len_bytes, at, from.len())?;
        let is_rows = [at, from.len() as u64].iter().all(|n| n.is_multiple_of(self.row_bytes));
        assert!(
            is_rows,
            "a write of {} bytes at {at} is not aligned to rows of {} bytes",
            from.len(),
            self.row_bytes
        );
        let write = self.begin(OperationKind::Write, at, from.len());
        match write.verdict {
            Verdict::Done | Verdict::PowerLost => self.lock().medium.write(at, from),
            Verdict::Fails { seed } => self.lock().medium.write_torn(at, from, seed),
            Verdict::PowerOff | Verdict::FailsOnce => {}
        }
        write.verdict.outcome()
    }

    fn flush(&self) -> io::Result<()> {
        let flush = self.begin(OperationKind::Flush, 0, 0);
        match flush.verdict {
            Verdict::Done => self.lock().medium.flush(flush.written),
            Verdict::Fails { .. } => self.lock().medium.mark_in_doubt(flush.written),
            Verdict::PowerLost | Verdict::PowerOff | Verdict::FailsOnce => {}
        }
        flush.verdict.outcome()
    }
}

impl Operation {
    fn conflicts(&self, other: &Self) -> bool {
        let overlap = self.at < other.at + other.len && other.at < self.at + self.len;
        overlap && (self.kind == OperationKind::Write || other.kind == OperationKind::Write)
    }

    fn touches(&self, range: &Range<u64>) -> bool {
        self.at < range.end && range.start < self.at + self.len
    }
}

/// Whether all tasks run on one thread, as in a world, so that no other call can happen at the same time.
fn is_single_threaded() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::CurrentThread)
}

/// The outcome of an operation.
#[derive(Debug, Clone, Copy)]
enum Verdict {
    Done,
    Fails {
        seed: u64,
    },
    /// The operation fails this once. Only reads do.
    FailsOnce,
    PowerLost,
    PowerOff,
}

impl Verdict {
    fn outcome(self) -> io::Result<()> {
        match self {
            Self::Done => Ok(()),
            _ => Err(io::Error::from_raw_os_error(libc::EIO)),
        }
    }
}

/// An operation from its call to its return.
struct InFlight<'a> {
    device: &'a SimDevice,
    operation: Operation,
    verdict: Verdict,
    /// Writes with a lower id had returned when this operation began.
    written: WriteId,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut state = self.device.lock();
        if let Some(place) = state.in_flight.iter().position(|other| *other == self.operation) {
            state.in_flight.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests;
