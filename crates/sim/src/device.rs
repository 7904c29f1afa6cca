//! A block device in memory: power cuts, torn writes, rot and errors, each from a seed.
//!
//! Owns what a real device may do to a drive, and is stricter than one: calls that overlap while one of them writes,
//! which a real one would answer with whatever comes first, are a panic here. Every operation is recorded.

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

/// What was asked of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// What it was.
    pub kind: OperationKind,
    /// Where it began, in bytes; 0 for a flush.
    pub at: u64,
    /// How many bytes; 0 for a flush.
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

/// A device in memory. Clones are the same device; a [`fork`](Self::fork) is one of its own.
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

/// How often each kind of fault met a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fired {
    /// Reads that failed at a sector that stays unreadable until it is written.
    pub unreadable: u64,
    /// Reads that failed once.
    pub passing: u64,
    /// Reads that returned a flipped bit.
    pub rotten: u64,
    /// Sectors that a loss of power made unreadable.
    pub spoiled: u64,
}

impl Fired {
    /// Adds those of another device.
    pub fn add(&mut self, other: Self) {
        self.unreadable += other.unreadable;
        self.passing += other.passing;
        self.rotten += other.rotten;
        self.spoiled += other.spoiled;
    }
}

impl SimDevice {
    /// A device of zeros that nothing happens to.
    pub fn new(len_bytes: u64) -> Self {
        Self::in_rows(len_bytes, BLOCK_BYTES)
    }

    /// One that takes whole rows of so many bytes only.
    pub fn in_rows(len_bytes: u64, row_bytes: u64) -> Self {
        let len_bytes = len_bytes - len_bytes % row_bytes;
        Self { len_bytes, row_bytes, state: Arc::default() }
    }

    /// Another device that is as this one is now: to let the power go at one moment in many ways.
    pub fn fork(&self) -> Self {
        let mut state = self.lock().clone();
        state.faults = state.faults.with_own_power();
        Self { state: Arc::new(Mutex::new(state)), ..*self }
    }

    /// A device of zeros whose power goes when this one's does.
    pub fn beside(&self, len_bytes: u64) -> Self {
        let faults = self.lock().faults.with_shared_power();
        let device = Self::new(len_bytes);
        device.lock().faults = faults;
        device
    }

    /// The power goes and comes back. What was flushed stays; of each write that was not, the seed says whether all, a
    /// part of its sectors or nothing of it is there, and which of two at one place came last. Errors that were asked
    /// for stay, but for [`cut_power_after`](Self::cut_power_after).
    pub fn crash(&self, seed: u64) {
        self.crash_spoiling(seed, 0);
    }

    /// As [`crash`](Self::crash); and one in `spoils` blocks that were being changed cannot be read until it is written again.
    pub fn crash_spoiling(&self, seed: u64, spoils: u64) {
        let mut state = self.lock();
        assert!(state.in_flight.is_empty(), "a crash while {:?} are under way", state.in_flight);
        let spoiled = state.medium.crash(seed, spoils);
        state.fired.spoiled += spoiled;
        state.faults.restore_power();
    }

    /// Blocks of the range cannot be read until they are written.
    pub fn spoil(&self, range: Range<u64>) {
        let mut state = self.lock();
        (range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES))
            .for_each(|block| state.medium.spoil(block));
    }

    /// Some blocks that nobody ever wrote cannot be read until they are written, most of them right behind what was written.
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

    /// One read in `one_in` fails, as the seed says; the same read may be done again.
    pub fn fail_reads_at_random(&self, seed: u64, one_in: u64) {
        self.lock().faults.reads_at_random(seed, one_in);
    }

    /// How often each kind of fault met a caller so far.
    pub fn fired(&self) -> Fired {
        self.lock().fired
    }

    /// The medium rots: one bit of the range changes, whether it was flushed or not. Says in which byte.
    pub fn flip(&self, seed: u64, range: Range<u64>) -> u64 {
        assert!(range.start < range.end && range.end <= self.len_bytes, "no bytes of the device: {range:?}");
        self.lock().medium.flip(seed, range)
    }

    /// Reads that touch the range fail.
    pub fn fail_reads(&self, range: Range<u64>) {
        self.lock().faults.reads.push(range);
    }

    /// Writes that touch the range fail, and leave some of their sectors.
    pub fn fail_writes(&self, range: Range<u64>) {
        self.lock().faults.writes.push(range);
    }

    /// One operation in `one_in` fails, as the seed says. What was written before a flush that fails is in doubt until
    /// it is written anew: no later flush makes it safe, as on a real device.
    pub fn fail_at_random(&self, seed: u64, one_in: u64) {
        self.lock().faults.at_random(seed, one_in);
    }

    /// So many more operations are done, then the power is off until [`crash`](Self::crash): every call fails. The write
    /// that meets the cut may leave anything of it.
    pub fn cut_power_after(&self, operations: u64) {
        self.lock().faults.cut_power_after(operations);
    }

    /// The device fails for good: every call.
    pub fn break_down(&self) {
        self.lock().faults.broken = true;
    }

    /// No more errors.
    pub fn heal(&self) {
        let mut state = self.lock();
        state.faults = state.faults.without_faults();
    }

    /// What was asked since this was called last, in order.
    pub fn take_operations(&self) -> Vec<Operation> {
        std::mem::take(&mut self.lock().operations)
    }

    /// How many writes a crash could undo.
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
            // Whoever else would call now may: that is when conflicts show.
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
        let (unreadable, rotten) = state.medium.count_bad_blocks(blocks);
        state.fired.unreadable += u64::from(unreadable > 0);
        state.fired.rotten += u64::from(rotten > 0 && unreadable == 0);
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
        assert!(is_rows, "{} bytes at {at} are no whole rows of {}", from.len(), self.row_bytes);
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

/// Whether nobody else can call meanwhile, as in a world, whose tasks are all on one thread.
fn is_single_threaded() -> bool {
    Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::CurrentThread)
}

/// What becomes of an operation.
#[derive(Debug, Clone, Copy)]
enum Verdict {
    Done,
    Fails {
        seed: u64,
    },
    /// It fails this once; only reads do.
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
    /// Writes before this one had returned when it began.
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
