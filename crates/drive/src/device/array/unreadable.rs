//! Unreadable units: tracks members that fail reads, and rewrites units that a member cannot read.
//!
//! A disk remaps an unreadable sector when it is written. Until then the sector counts as lost, and the loss of another disk would lose
//! the row. So after a read that had to be computed from other members, the units that failed are rewritten.

use super::shape::Members;
use super::{Array, MemberFailures, ScrubbedRows, Wait, erasure_code};
use crate::device::{BlockDevice as _, Buffer};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// After this many failed reads in a row, a member is read only if the others do not suffice.
const FAILURES_MAX: u32 = 3;

/// One in this many reads uses members with too many failures all the same, to notice when they recover.
const PROBE_EVERY: u32 = 256;

/// Units of one member in consecutive rows that a read could not deliver. At least one of them is unreadable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnreadableUnits {
    pub(super) member: usize,
    /// The first of the rows.
    pub(super) first: u64,
    /// The number of rows.
    pub(super) rows: usize,
}

/// Read failures of each member.
#[derive(Debug)]
pub(super) struct MemberHealth {
    /// Consecutive failed reads, by member.
    failures: Vec<AtomicU32>,
    /// Number of reads since the opening for which a member was to be avoided, including those that used it nevertheless.
    avoiding_reads: AtomicU32,
    /// Whether no member is avoided.
    reads_directly: AtomicBool,
    /// Number of reads since the opening for which a member failed or was avoided.
    indirect_reads: AtomicU64,
}

impl MemberHealth {
    pub(super) fn new(members: usize) -> Self {
        Self {
            failures: (0..members).map(|_| AtomicU32::new(0)).collect(),
            avoiding_reads: AtomicU32::new(0),
            reads_directly: AtomicBool::new(false),
            indirect_reads: AtomicU64::new(0),
        }
    }

    /// Sets whether no member is avoided.
    pub(super) fn read_directly(&self, always: bool) {
        self.reads_directly.store(always, Ordering::SeqCst);
    }

    /// Counts a read for which a member failed or was avoided.
    pub(super) fn count_indirect_read(&self) {
        self.indirect_reads.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the number of reads since the opening for which a member failed or was avoided.
    pub(super) fn indirect_reads(&self) -> u64 {
        self.indirect_reads.load(Ordering::SeqCst)
    }

    /// Notes that a member was read without an error, which resets its count of successive failures.
    pub(super) fn count_success(&self, member: usize) {
        // Loaded first, as every read comes here and a store is rarely needed.
        if self.failures[member].load(Ordering::Relaxed) > 0 {
            self.failures[member].store(0, Ordering::Relaxed);
        }
    }

    /// Counts a failed read. Returns whether to log it: the first, second, fourth, eighth ... in a row.
    pub(super) fn count_failure(&self, member: usize) -> bool {
        let failures = self.failures[member].fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        failures.is_power_of_two()
    }

    /// Returns the members to avoid in this read.
    pub(super) fn members_to_avoid(&self) -> Members {
        if self.reads_directly.load(Ordering::SeqCst) {
            return Members::default();
        }
        let is_failing = |member: &usize| self.failures[*member].load(Ordering::Relaxed) >= FAILURES_MAX;
        let failing = Members::of((0..self.failures.len()).filter(is_failing));
        let is_probe = !failing.is_empty()
            && self.avoiding_reads.fetch_add(1, Ordering::Relaxed).is_multiple_of(PROBE_EVERY);
        if is_probe { Members::default() } else { failing }
    }
}

impl Array {
    /// Logs members that failed a read; of a member that fails every read, only some failures.
    pub(super) fn log_failures(&self, failed: &MemberFailures) {
        let logged = Members::of(failed.members.iter().filter(|&member| self.health.count_failure(member)));
        if !logged.is_empty() {
            let error = failed.error.as_ref().map(ToString::to_string).unwrap_or_default();
            tracing::warn!(members = ?self.names(logged), error, "devices failed to read; the data is read without them if enough others remain");
        }
    }

    /// Rewrites unreadable units, computed from the other members. Returns a line for each unit that stays unreadable,
    /// with the reason. The rows must not be written by others meanwhile.
    ///
    /// A unit is written only if all readable members agree on it, as far as there are more of them than needed. Otherwise one of them is
    /// damaged, which only a checksum can find.
    pub(super) async fn rewrite_unreadable(&self, wait: Wait, unreadable: &[UnreadableUnits]) -> Vec<String> {
        let mut left = Vec::new();
        for &UnreadableUnits { member, first, rows } in unreadable {
            for row in first..first + rows as u64 {
                if !self.in_sync().contains(member) {
                    break;
                }
                if let Err(reason) = self.rewrite_unit(wait, member, row).await {
                    let names = self.names(Members::of([member])).concat();
                    let at = super::position_of(row);
                    left.push(format!("{names}: the block at byte {at} cannot be read: {reason}"));
                }
            }
        }
        left
    }

    /// Rewrites a unit, unless it can be read now. The error is the reason why it stays unreadable.
    async fn rewrite_unit(&self, wait: Wait, member: usize, row: u64) -> io::Result<()> {
        let of_member = Members::of([member]);
        // A failed read may succeed the second time, and of several units most are readable.
        if self.read_units(wait, of_member, |_| (row, 1)).await.1.members.is_empty() {
            return Ok(());
        }
        let right = self.computed_unit(wait, member, row).await?;
        if self.read_only {
            return Err(io::Error::other("the drive is open read-only, so the block is not rewritten"));
        }
        self.rewrite_units(wait, vec![(member, row, right.into())]).await?;
        match self.in_sync().contains(member) {
            true => Ok(()),
            false => Err(io::Error::other("nor written; the device is excluded from the array")),
        }
    }

    /// Computes a member's unit of a row from the other members.
    async fn computed_unit(&self, wait: Wait, member: usize, row: u64) -> io::Result<Buffer> {
        let others = self.in_sync().without(Members::of([member]));
        let (stored, failed) = self.read_units(wait, others, |_| (row, 1)).await;
        let read = others.without(failed.members);
        if read.len() < self.shape.data {
            return Err(io::Error::other("too few other devices are readable there"));
        }
        let needed = Members::of(read.iter().take(self.shape.data));
        let kept = stored.iter().enumerate().map(|(number, units)| {
            units.as_ref().filter(|_| needed.contains(number)).map(|units| Buffer::gathered([&units[..]]))
        });
        let mut units = erasure_code::restore(self.shape, kept.collect())?;
        units.extend(erasure_code::parity(self.shape, &units)?);
        let agrees =
            |number: usize| stored[number].as_ref().is_some_and(|stored| stored[..] == units[number][..]);
        if !read.iter().all(agrees) {
            return Err(io::Error::other("the other devices contradict each other there, so one is damaged"));
        }
        Ok(units.swap_remove(member))
    }

    /// Reads rows one by one, as each may be readable from other members. Fails at the first that is not.
    pub(super) async fn read_rows_singly(
        &self,
        wait: Wait,
        at: u64,
        into: &mut [u8],
        excluded: Members,
    ) -> io::Result<()> {
        let row_bytes = self.row_bytes();
        let mut done = 0;
        while done < into.len() {
            let from = at + done as u64;
            let len = ((row_bytes - from % row_bytes) as usize).min(into.len() - done);
            // Boxed because the call is recursive, for fewer rows.
            Box::pin(self.read_excluding(wait, from, &mut into[done..done + len], excluded)).await?;
            done += len;
        }
        Ok(())
    }

    /// Does what [`BlockDevice::scrub_rows`](super::BlockDevice::scrub_rows) does.
    pub(super) async fn scrub_rows_of(
        &self,
        wait: Wait,
        at: u64,
        len_bytes: u64,
        is_verified: bool,
    ) -> io::Result<ScrubbedRows> {
        if self.shape.parity == 0 {
            return Ok(ScrubbedRows::default());
        }
        let first = at / self.row_bytes();
        let rows = (at + len_bytes).div_ceil(self.row_bytes()) - first;
        let (stored, failed) = self.read_units(wait, self.in_sync(), |_| (first, rows as usize)).await;
        let unreadable =
            failed.members.iter().map(|member| UnreadableUnits { member, first, rows: rows as usize });
        let unreadable = self.rewrite_unreadable(wait, &unreadable.collect::<Vec<_>>()).await;
        // Parity is not computed from rows in which a unit stays unreadable.
        let has_wrong_parity = unreadable.is_empty() && {
            let stored = if failed.members.is_empty() { Some(stored) } else { None };
            self.compare_parity(wait, (first, rows as usize), stored, is_verified && !self.read_only).await?
        };
        Ok(ScrubbedRows { unreadable, has_wrong_parity })
    }
}
