//! Rebuild: makes a device the missing member of an array.

use super::assemble::{new_id, of_device, read_label};
use super::shape::UNIT_BYTES;
use super::{Array, Member, Members, Wait, position_of, units_of};
use crate::device::{BlockDevice, Buffer, Io, Pace, block_on};
use crate::error::{Error, Result};
use bytes::Bytes;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use store::Entropy;
use tokio::sync::OwnedRwLockWriteGuard;

/// Rows rebuilt by one step.
const ROWS_AT_ONCE: u64 = 256;

/// The outcome of a rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebuilt {
    /// The index of the member that the device has become.
    pub member: usize,
    /// Rows that could not be computed, because too few of the other members can be read there. The new member has zeros in them. Data
    /// in these rows is damaged; a scrub names it.
    pub rows_lost: u64,
}

impl Array {
    /// Returns whether a device was a member of this array once and is none now, so that its contents are useless.
    /// Returns false if the device's label cannot be read.
    pub fn was_member(&self, io: &Io) -> bool {
        matches!(self.membership_of(io), Ok(Some(false)))
    }

    /// Returns whether the device is a member according to the label on it: false for a former member, `None` if the
    /// device has no label of this array.
    fn membership_of(&self, io: &Io) -> io::Result<Option<bool>> {
        let Some(own) = read_label(&*io.device())? else { return Ok(None) };
        let label = block_on(self.label.lock());
        Ok((own.array == label.array).then(|| label.members.contains(&own.own)))
    }

    /// Makes a device a missing member: the one that it was before if that is missing, else the first missing. The
    /// device's contents are lost. The data of the other members is not verified: scrub the drive before, while parity
    /// is left. `progress` gets the number of rows done and of all rows. Blocks.
    ///
    /// An interrupted rebuild changes nothing but the device, and can be started again.
    pub fn rebuild(
        self: &Arc<Self>,
        name: String,
        io: &Io,
        entropy: &Entropy,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Rebuilt> {
        let joining = self.begin_rebuild(name, io, entropy)?;
        let (mut row, mut rows_lost) = (0, 0);
        while row < self.rows {
            let exclusive = block_on(self.writing.clone().write_owned());
            let rows = ROWS_AT_ONCE.min(self.rows - row);
            rows_lost += joining.rebuild_rows(row, rows, exclusive)?;
            row += rows;
            progress(row, self.rows);
        }
        joining.admit(block_on(self.writing.clone().write_owned()))?;
        Ok(Rebuilt { member: joining.number, rows_lost })
    }

    /// Does what [`rebuild`](Self::rebuild) does, but while the array is in use, and at a limited pace. Writers wait
    /// while rows are computed.
    ///
    /// Fails at the first row that cannot be computed ([`Error::NotComputable`]), as a device may be unavailable only for the moment.
    pub async fn rebuild_in_use(
        self: &Arc<Self>,
        name: String,
        io: &Io,
        entropy: &Entropy,
        pace: &dyn Pace,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Rebuilt> {
        let joining = Arc::new(self.begin_rebuild(name, io, entropy)?);
        let mut row = 0;
        while row < self.rows {
            let exclusive = self.writing.clone().write_owned().await;
            let rows = ROWS_AT_ONCE.min(self.rows - row);
            let lost =
                run_blocking(&joining, move |joining| joining.rebuild_rows(row, rows, exclusive)).await?;
            if lost > 0 {
                return Err(Error::NotComputable { rows: lost });
            }
            row += rows;
            progress(row, self.rows);
            pace.after(rows * self.row_bytes()).await;
        }
        let exclusive = self.writing.clone().write_owned().await;
        run_blocking(&joining, move |joining| joining.admit(exclusive)).await?;
        Ok(Rebuilt { member: joining.number, rows_lost: 0 })
    }

    /// Adds the device as a target of all writes. Fails if the device is or may be a member, or is too short, if no
    /// member is missing, or if another rebuild is in progress.
    fn begin_rebuild(self: &Arc<Self>, name: String, io: &Io, entropy: &Entropy) -> Result<Joining> {
        // Made another member, a member would lose the contents that it has.
        match self.membership_of(io) {
            Ok(Some(false) | None) => {}
            Ok(Some(true)) => {
                return Err(Error::Unsuitable(format!(
                    "{name} is a member of the array, or a copy of one: name another device, or wipe the first MiB of the copy"
                )));
            }
            Err(error) => {
                return Err(Error::Unsuitable(format!(
                    "{name} may be a member of the array, as its label cannot be read ({error}): name another device, or wipe the first MiB of this one"
                )));
            }
        }
        let number = self.number_for(io)?;
        let needed = position_of(self.rows);
        let len_bytes = io.device().len_bytes();
        if len_bytes < needed {
            return Err(Error::Unsuitable(format!(
                "{name} has {len_bytes} bytes, but a member of the array needs {needed}"
            )));
        }
        let member = Member::new(name, new_id(entropy), io);
        let mut joins = self.joining.write().unwrap_or_else(PoisonError::into_inner);
        if joins.is_some() {
            return Err(Error::Unsuitable("another device is being rebuilt".into()));
        }
        *joins = Some((number, member.clone()));
        Ok(Joining { array: self.clone(), number, member })
    }

    /// Ends the writes to a device that is being rebuilt, unless another device is being rebuilt by now.
    pub(super) fn end_joining(&self, ended: &Member) {
        let mut joins = self.joining.write().unwrap_or_else(PoisonError::into_inner);
        if joins.as_ref().is_some_and(|(_, member)| member.id == ended.id) {
            *joins = None;
        }
    }

    /// Returns the number of a missing member that a device can become: preferably the one that it was.
    fn number_for(&self, io: &Io) -> Result<usize> {
        let missing = Members::of(0..self.shape.members()).without(self.in_sync());
        let was = read_label(&*io.device()).ok().flatten().map(|label| label.index);
        let number = was.filter(|&was| missing.contains(was)).or_else(|| missing.iter().next());
        number.ok_or_else(|| Error::Unsuitable("no member of the array is missing".into()))
    }

    /// Computes a member's units of rows. Rows that cannot be computed are zeros and are added to `rows_lost`. Fails if
    /// none can be computed.
    fn units_or_zeros(&self, number: usize, row: u64, rows: u64, rows_lost: &mut u64) -> Result<Bytes> {
        if let Ok(units) = self.units_at(number, row, rows) {
            return Ok(units);
        }
        let (mut units, mut lost) = (Vec::new(), 0);
        for row in row..row + rows {
            match self.units_at(number, row, 1) {
                Ok(unit) => units.push(unit),
                Err(error) => {
                    tracing::warn!(row, %error, "a row cannot be computed from the other devices; if the rebuild completes, the new device holds zeros there");
                    units.push(Bytes::from_static(&[0; UNIT_BYTES]));
                    lost += 1;
                    // Single sectors may be lost without harm. If no row can be computed, a device has failed and the rebuild ends.
                    if lost == rows {
                        return Err(error);
                    }
                }
            }
        }
        *rows_lost += lost;
        Ok(Buffer::gathered(units.iter().map(|unit| &unit[..])).into())
    }

    /// Computes the units of a member for rows, from the data of the array.
    fn units_at(&self, number: usize, row: u64, rows: u64) -> Result<Bytes> {
        let at = row * self.row_bytes();
        let mut data = Buffer::zeroed((rows * self.row_bytes()) as usize);
        self.read_at(at, &mut data).map_err(Error::device(at))?;
        Ok(units_of(self.shape, &data).map_err(Error::device(at))?.swap_remove(number))
    }
}

/// A rebuild in progress. If it is dropped before its end, the device gets no more writes and is no member.
struct Joining {
    array: Arc<Array>,
    /// The number of the member that the device becomes.
    number: usize,
    member: Member,
}

impl Drop for Joining {
    fn drop(&mut self) {
        self.array.end_joining(&self.member);
    }
}

/// Runs a step of a rebuild on a thread for blocking calls.
async fn run_blocking<T: Send + 'static>(
    joining: &Arc<Joining>,
    step: impl FnOnce(&Joining) -> Result<T> + Send + 'static,
) -> Result<T> {
    let joining = joining.clone();
    let done = store::blocking(move || Ok(step(&joining))).await;
    done.unwrap_or_else(|error| Err(Error::aborted(&error)))
}

impl Joining {
    /// Fails if the device has missed a write since the beginning of the rebuild.
    fn check(&self) -> Result<()> {
        let joins = self.array.joining.read().unwrap_or_else(PoisonError::into_inner);
        match joins.as_ref().is_some_and(|(_, member)| member.id == self.member.id) {
            true => Ok(()),
            false => Err(Error::Unsuitable(format!(
                "{}: a write to the device failed, so its rebuild has ended: start it again, or name another device",
                self.member.name
            ))),
        }
    }

    /// Computes and writes the device's units of some rows. The guard keeps others from writing to the array meanwhile.
    /// Returns the number of rows that could not be computed.
    fn rebuild_rows(&self, row: u64, rows: u64, exclusive: OwnedRwLockWriteGuard<()>) -> Result<u64> {
        self.check()?;
        let mut rows_lost = 0;
        let units = self.array.units_or_zeros(self.number, row, rows, &mut rows_lost)?;
        block_on(self.member.write(Wait::Blocking, position_of(row), units))
            .map_err(|error| of_device(&self.member.name, &error))?;
        drop(exclusive);
        Ok(rows_lost)
    }

    /// Makes the device a member, in a new epoch. Its own label is written first: until the others name it too, it counts as excluded. No
    /// writes happen before the labels are durable.
    fn admit(&self, exclusive: OwnedRwLockWriteGuard<()>) -> Result<()> {
        self.check()?;
        let (array, number, member) = (&self.array, self.number, &self.member);
        block_on(member.clone().flush(Wait::Blocking)).map_err(|error| of_device(&member.name, &error))?;
        let admitted = block_on(async {
            let mut label = array.label.lock().await;
            let mut own = label.clone();
            own.members[number] = member.id;
            own.epoch += 1;
            member.clone().write_label(Wait::Blocking, own.clone(), number).await?;
            let others = array.in_sync();
            *label = own;
            // The device has all that was written. If writing the label of another member fails now, the array continues with this device.
            array.labels_outdated.store(true, Ordering::SeqCst);
            let place = |members: &mut Vec<Option<Member>>| members[number] = Some(member.clone());
            place(&mut array.members.write().unwrap_or_else(PoisonError::into_inner));
            *array.in_sync.write().unwrap_or_else(PoisonError::into_inner) =
                others.union(Members::of([number]));
            array.stale.write().unwrap_or_else(PoisonError::into_inner)[number] = None;
            // Without this, a write to the new member would also go to the device that joins, and so twice to the same device at once.
            array.end_joining(member);
            let next = label.clone();
            let failed = array
                .on_each_member(others, |number, member| {
                    member.write_label(Wait::Blocking, next.clone(), number)
                })
                .await;
            match failed.members.is_empty() {
                true => array.labels_outdated.store(false, Ordering::SeqCst),
                false => array.write_new_labels(Wait::Blocking, &mut label, failed).await?,
            }
            Ok(())
        });
        drop(exclusive);
        admitted.map_err(Error::device(0))
    }
}
