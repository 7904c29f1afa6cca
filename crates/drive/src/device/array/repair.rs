//! Repair: rewrites wrong units with data computed from the other members.

use super::shape::{Members, Span, UNIT_BYTES};
use super::{Array, Member, Wait, erasure_code, position_of, units_of};
use crate::device::{AlternateReader, BlockDevice as _, Buffer, block_on};
use bytes::Bytes;
use std::io;
use std::sync::atomic::Ordering;

impl Array {
    /// Calls `attempt` with a reader that leaves out a member. If it returns true, repairs the ranges that it read.
    pub(super) fn reconstruct_without(
        &self,
        member: usize,
        attempt: &mut dyn FnMut(&mut AlternateReader<'_>) -> bool,
    ) -> bool {
        let excluded = Members::of([member]);
        let read = |at, into: &mut [u8]| block_on(self.read_excluding(Wait::Blocking, at, into, excluded));
        let mut reader = AlternateReader::new(&read);
        if !attempt(&mut reader) {
            return false;
        }
        for (at, bytes) in reader.into_ranges() {
            if let Err(error) = block_on(self.repair_units(Wait::Blocking, member, at, bytes)) {
                tracing::warn!(at, %error, "damaged data was reconstructed from the other devices, but could not be repaired on its device");
            }
        }
        true
    }

    /// Repairs a range that was right when it was read without the member `excluded`. Rewrites what that member has wrong in the rows of the
    /// range. In rows of which the range contains all data, rewrites what any member has wrong. The range must not be written by others
    /// meanwhile.
    ///
    /// In other rows, the member is rewritten only if the range contains its unit, or the unit of a missing member. Computing such a unit
    /// needed everything that was read of the row, so all of that was right.
    async fn repair_units(&self, wait: Wait, excluded: usize, at: u64, bytes: usize) -> io::Result<()> {
        let in_sync = self.in_sync();
        if self.read_only || !in_sync.contains(excluded) {
            return Ok(());
        }
        let span = Span::of(self.shape, at, bytes);
        let (first, rows) = span.rows();
        let mut data = Buffer::zeroed(rows * self.shape.row_bytes() as usize);
        self.read_excluding(wait, first * self.row_bytes(), &mut data, Members::of([excluded])).await?;
        let right = units_of(self.shape, &data)?;
        let is_in = |member: usize, row: u64| span.offset_of(member, row).is_some();
        let is_known = |member: usize, row: u64| {
            let mut known =
                (0..self.shape.data).filter(|&known| known == excluded || !in_sync.contains(known));
            let is_all = (0..self.shape.data).all(|of_data| is_in(of_data, row));
            is_all || member == excluded && known.any(|known| is_in(known, row))
        };
        let mut wrong = Vec::new();
        for member in in_sync.iter() {
            // If not all rows can be read, they are read and compared one at a time.
            let (stored, failed) = self.read_units(wait, Members::of([member]), |_| (first, rows)).await;
            for (n, unit) in right[member].chunks_exact(UNIT_BYTES).enumerate() {
                let row = first + n as u64;
                if !is_known(member, row) {
                    continue;
                }
                let is_right = match (&stored[member], failed.members.is_empty()) {
                    (Some(stored), true) => stored[n * UNIT_BYTES..][..UNIT_BYTES] == *unit,
                    _ => {
                        let (stored, _) = self.read_units(wait, Members::of([member]), |_| (row, 1)).await;
                        stored[member].as_ref().is_some_and(|stored| stored[..] == *unit)
                    }
                };
                if !is_right {
                    wrong.push((member, row, Buffer::gathered([unit]).into()));
                }
            }
        }
        self.rewrite_units(wait, wrong).await
    }

    /// Computes the parity of rows: the first, and their number. Returns whether it differs from that on the devices, unless it `rewrites`
    /// the parity units that differ; then the data must be right as the devices have it. `stored` has the units of all members in sync, if
    /// all could be read. The rows must not be written by others meanwhile.
    pub(super) async fn compare_parity(
        &self,
        wait: Wait,
        (first, rows): (u64, usize),
        stored: Option<Vec<Option<Buffer>>>,
        rewrites: bool,
    ) -> io::Result<bool> {
        let mut data = Buffer::zeroed(rows * self.shape.row_bytes() as usize);
        let has_all = |stored: &Vec<Option<Buffer>>| stored[..self.shape.data].iter().all(Option::is_some);
        let stored = match stored.filter(has_all) {
            Some(stored) => {
                let span = Span::of(self.shape, first * self.row_bytes(), data.len());
                for (member, units) in stored.iter().enumerate().take(self.shape.data) {
                    units.iter().for_each(|units| span.scatter(member, first, units, &mut data));
                }
                stored
            }
            None => {
                self.read_excluding(wait, first * self.row_bytes(), &mut data, Members::default()).await?;
                let of_parity = Members::of(self.shape.data..self.shape.members());
                let of_parity =
                    Members::of(of_parity.iter().filter(|&member| self.in_sync().contains(member)));
                self.read_units(wait, of_parity, |_| (first, rows)).await.0
            }
        };
        let parity = erasure_code::parity(self.shape, &self.shape.split(&data))?;
        let wrong = self.wrong_parity(&parity, &stored, first);
        if !rewrites {
            return Ok(!wrong.is_empty());
        }
        self.rewrite_units(wait, wrong).await?;
        Ok(false)
    }

    /// Returns the wrong and the unreadable parity units of members in sync: member, row, and the right bytes.
    fn wrong_parity(
        &self,
        parity: &[Buffer],
        stored: &[Option<Buffer>],
        first: u64,
    ) -> Vec<(usize, u64, Bytes)> {
        let in_sync = self.in_sync();
        let mut wrong = Vec::new();
        for (member, right) in (self.shape.data..).zip(parity).filter(|(member, _)| in_sync.contains(*member))
        {
            for (n, unit) in right.chunks_exact(UNIT_BYTES).enumerate() {
                let was = stored[member].as_ref().map(|was| &was[n * UNIT_BYTES..][..UNIT_BYTES]);
                if was != Some(unit) {
                    wrong.push((member, first + n as u64, Buffer::gathered([unit]).into()));
                }
            }
        }
        wrong
    }

    /// Writes units to their places: member, row and bytes. Members that fail are excluded from the array.
    pub(super) async fn rewrite_units(&self, wait: Wait, wrong: Vec<(usize, u64, Bytes)>) -> io::Result<()> {
        for (number, row, unit) in wrong {
            let write = |_, member: Member| {
                let unit = unit.clone();
                async move { member.write(wait, position_of(row), unit).await }
            };
            let failed = self.on_each_member(Members::of([number]), write).await;
            if failed.members.is_empty() {
                self.repaired.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(row, member = ?self.names(Members::of([number])), "rewrote a damaged or unreadable block");
            }
            self.exclude(wait, failed).await?;
        }
        Ok(())
    }
}
