//! Rebuild: a device becomes the member that is missing.

use super::open::{new_id, of_device, read_label};
use super::{Array, Member, Members, Waits, place_of, units_of};
use crate::device::{BlockDevice, Buffer, Io};
use crate::error::{Error, Result};
use bytes::Bytes;
use futures_executor::block_on;
use store::Entropy;

/// How many rows are rebuilt at a time.
const ROWS_AT_ONCE: u64 = 256;

impl Array {
    /// Whether a device was a member once, and is none now: what is on it is of no use.
    pub fn was_member(&self, io: &Io) -> bool {
        let label = read_label(&*io.device()).ok().flatten();
        let (array, ids) = block_on(async {
            let label = self.label.lock().await;
            (label.array, label.members.clone())
        });
        label.is_some_and(|label| label.array == array && !ids.contains(&label.own))
    }

    /// Makes a device the member that is missing, of several the one that it was or the first; which, by its number. What was on
    /// the device is gone. `progress` hears how many rows of how many are done. Nobody else uses the array meanwhile; it knows its
    /// new member when it is opened again. Blocks.
    ///
    /// Killed before its end nothing is changed but the device, and it can be begun again.
    pub fn rebuild(
        &self,
        name: String,
        io: &Io,
        entropy: &Entropy,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<usize> {
        let number = self.number_for(io)?;
        let needed = place_of(self.rows);
        let len_bytes = io.device().len_bytes();
        if len_bytes < needed {
            return Err(Error::Unfit(format!(
                "{name} has {len_bytes} bytes, and a member of the array {needed}"
            )));
        }
        let member = Member::new(name.clone(), new_id(entropy), io);
        let mut row = 0;
        while row < self.rows {
            let rows = ROWS_AT_ONCE.min(self.rows - row);
            let units = self.units_at(number, row, rows)?;
            block_on(member.write(Waits::Here, place_of(row), units))
                .map_err(|error| of_device(&name, &error))?;
            row += rows;
            progress(row, self.rows);
        }
        block_on(member.clone().flush(Waits::Here)).map_err(|error| of_device(&name, &error))?;
        self.admit(number, member)?;
        Ok(number)
    }

    fn number_for(&self, io: &Io) -> Result<usize> {
        let missing = Members::of(0..self.shape.members()).without(self.in_sync());
        let was = read_label(&*io.device()).ok().flatten().map(|label| label.index);
        let number = was.filter(|&was| missing.has(was)).or_else(|| missing.each().next());
        number.ok_or_else(|| Error::Unfit("no member of the array is missing".into()))
    }

    /// What a member has to have of rows.
    fn units_at(&self, number: usize, row: u64, rows: u64) -> Result<Bytes> {
        let at = row * self.row_bytes();
        let mut data = Buffer::zeroed((rows * self.row_bytes()) as usize);
        self.read_at(at, &mut data).map_err(Error::device(at))?;
        Ok(units_of(self.shape, &data).map_err(Error::device(at))?.swap_remove(number))
    }

    /// From the next epoch on the device is a member. Its own label first: before the others name it, it is one of those that are
    /// left out.
    fn admit(&self, number: usize, member: Member) -> Result<()> {
        block_on(async {
            let mut label = self.label.lock().await;
            label.members[number] = member.id;
            let mut own = label.clone();
            own.epoch += 1;
            member.write_label(Waits::Here, own, number).await?;
            label.epoch += 1;
            let next = label.clone();
            let failed = self
                .on_each(self.in_sync(), |number, member| {
                    member.write_label(Waits::Here, next.clone(), number)
                })
                .await;
            if failed.members.is_empty() { Ok(()) } else { Err(failed.into_error()) }
        })
        .map_err(Error::device(0))
    }
}
