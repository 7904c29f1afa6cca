//! An array: several devices as one, with data and parity in rows, so that some devices may be lost.
//!
//! A *row* is one unit (a block) of each member at the same position: the units of data, then those of parity. Consecutive rows are
//! consecutive on every member, so a long read is one read of each member. Writes are whole rows, and the drive never overwrites data
//! that it still needs. So nothing depends on a row that a power cut has torn, and there is no write hole.
//!
//! Owns the members and their [`Label`]s. Invariants: a write or flush that misses a member returns only when the labels of the others
//! state durably that it is no member any more. Data is read only from members in sync, or computed from them. A unit that is rewritten in
//! place (by a repair) was wrong before.
//!
//! Does not know whether the data it reads is right. Its callers have checksums for that: they try alternative reads until the data is
//! right ([`BlockDevice::reconstruct`]), and the array repairs what made it wrong.

mod assemble;
mod erasure_code;
mod label;
mod rebuild;
mod repair;
mod shape;
mod small_code;
mod unreadable;

pub use assemble::{ArrayInfo, Found, MemberState};
#[cfg(feature = "fuzz")]
pub(crate) use label::fuzz_label;
pub(crate) use label::{MAGIC as ARRAY_MAGIC, ROWS_AT as ARRAY_ROWS_AT, VERSION as ARRAY_VERSION};
pub use rebuild::Rebuilt;
pub use shape::{MEMBERS_MAX, Shape};

use super::{
    AlternateReader, BlockDevice, Buffer, Io, Ring, ScrubbedRows, block_on, check_read, check_write,
};
use bytes::Bytes;
use futures_util::future::{join, join_all};
use label::{Label, NO_DEVICE, ROWS_AT};
use shape::{Members, Span, UNIT_BYTES};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use unreadable::{MemberHealth, UnreadableUnits};

/// Maximum data, in bytes, whose parity or missing units are computed on the runtime's thread.
const COMPUTE_IN_PLACE_BYTES_MAX: usize = 128 << 10;

/// Several devices as one device.
pub struct Array {
    label: tokio::sync::Mutex<Label>,
    shape: Shape,
    /// The number of rows.
    rows: u64,
    /// By index: the members that were in sync when the array was opened, or were rebuilt since; `None` if missing or
    /// excluded.
    members: RwLock<Vec<Option<Member>>>,
    /// By index: the name of the device that missed writes, if one is known: it was stale when the array was opened, or was
    /// excluded since.
    stale: RwLock<Vec<Option<String>>>,
    /// The members that are read and written: those with a device in `members`.
    in_sync: RwLock<Members>,
    /// The index of the member that a rebuild in progress restores, and the device that will be this member. The device
    /// gets all writes.
    joining: RwLock<Option<(usize, Member)>>,
    /// Held shared by writers of rows, and exclusively by a rebuild while it computes rows.
    writing: Arc<tokio::sync::RwLock<()>>,
    /// Whether a member was excluded and the labels do not say so yet.
    labels_outdated: AtomicBool,
    read_only: bool,
    /// Number of units rewritten because they were wrong.
    repaired: AtomicU64,
    health: MemberHealth,
}

/// A device of an array.
#[derive(Debug, Clone)]
struct Member {
    name: String,
    id: u64,
    ring: Option<Arc<Ring>>,
    device: Arc<dyn BlockDevice>,
}

/// The way in which a call waits for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// By blocking the caller's thread.
    Blocking,
    /// Asynchronously, without blocking a thread of the runtime.
    Async,
}

/// The members that failed in a call, and the first error.
#[derive(Debug, Default)]
struct MemberFailures {
    members: Members,
    error: Option<io::Error>,
}

impl Array {
    /// Returns whether a device of this name is a member.
    pub fn has_member(&self, name: &str) -> bool {
        self.present(Members::of(0..self.shape.members())).any(|(_, member)| member.name == name)
    }

    /// Returns the present state of each member, by index. A device that was excluded after an error is stale, whether or not it still
    /// works.
    pub fn member_states(&self) -> Vec<MemberState> {
        let stale = self.stale.read().unwrap_or_else(PoisonError::into_inner).clone();
        let state_of = |device: Option<String>| device.map_or(MemberState::Missing, MemberState::Stale);
        let mut states: Vec<MemberState> = stale.into_iter().map(state_of).collect();
        for (number, member) in self.present(self.in_sync()) {
            states[number] = MemberState::InSync(member.name);
        }
        states
    }

    /// Returns how many more members may be lost without loss of data.
    pub fn losses_left(&self) -> usize {
        self.in_sync().len().saturating_sub(self.shape.data)
    }

    /// Does what [`BlockDevice::read_at`] does, for async callers.
    pub(super) async fn await_read(&self, at: u64, mut into: Buffer) -> io::Result<Buffer> {
        self.read_excluding(Wait::Async, at, &mut into, Members::default()).await?;
        Ok(into)
    }

    /// Does what [`BlockDevice::write_at`] does, for async callers.
    pub(super) async fn await_write(&self, at: u64, rows: Bytes) -> io::Result<()> {
        self.check_rows(at, rows.len())?;
        let (shape, is_long) = (self.shape, rows.len() > COMPUTE_IN_PLACE_BYTES_MAX);
        let compute = move || units_of(shape, &rows);
        let units = if is_long { store::blocking(compute).await? } else { compute()? };
        self.write_units(Wait::Async, at, units).await
    }

    /// Does what [`BlockDevice::flush`] does, for async callers.
    pub(super) async fn await_flush(&self) -> io::Result<()> {
        self.flush_all(Wait::Async).await
    }

    /// Flushes all members that are in sync, and excludes those that fail.
    async fn flush_all(&self, wait: Wait) -> io::Result<()> {
        let failed = self.on_each_member(self.in_sync(), |_, member| member.flush(wait)).await;
        self.exclude(wait, failed).await
    }

    /// Checks that a write is of whole rows within the array.
    fn check_rows(&self, at: u64, bytes: usize) -> io::Result<()> {
        check_write(self.len_bytes(), at, bytes)?;
        let is_whole = [at, bytes as u64].iter().all(|n| n.is_multiple_of(self.row_bytes()));
        assert!(is_whole, "{bytes} bytes at {at} are not whole rows");
        Ok(())
    }

    /// Writes the units of each member for rows from a position on.
    async fn write_units(&self, wait: Wait, at: u64, units: Vec<Bytes>) -> io::Result<()> {
        let position = position_of(at / self.row_bytes());
        let write = |number: usize, member: Member| {
            let units = units[number].clone();
            async move { member.write(wait, position, units).await }
        };
        let _no_rebuild = self.writing.read().await;
        let joining = self.joining.read().unwrap_or_else(PoisonError::into_inner).clone();
        let to_joining = async {
            match &joining {
                Some((number, member)) => write(*number, member.clone()).await,
                None => Ok(()),
            }
        };
        let (failed, joins) = join(self.on_each_member(self.in_sync(), write), to_joining).await;
        if let (Err(error), Some((_, member))) = (joins, &joining) {
            // The next step of the rebuild notices that and fails.
            tracing::error!(%error, "the device that is being rebuilt failed a write, so the rebuild ends");
            self.end_joining(member);
        }
        self.exclude(wait, failed).await
    }

    /// Reads without the members `excluded`, and without members that fail, as long as enough remain. Then rewrites the
    /// units that failed, unless the array is open read-only.
    async fn read_excluding(
        &self,
        wait: Wait,
        at: u64,
        into: &mut [u8],
        excluded: Members,
    ) -> io::Result<()> {
        check_read(self.len_bytes(), at, into.len())?;
        let span = Span::of(self.shape, at, into.len());
        let wanted = span.members();
        let usable = self.in_sync().without(excluded);
        // Members that failed their last reads are used only if needed.
        let mut left = usable.without(self.health.members_to_avoid());
        let mut last_resort = usable.without(left);
        let is_avoiding = !last_resort.is_empty();
        let mut unreadable = Vec::new();
        loop {
            if left.len() < self.shape.data {
                left = left.union(std::mem::take(&mut last_resort));
            }
            let needs_restore = !wanted.without(left).is_empty();
            let asked = if needs_restore { Members::of(left.iter().take(self.shape.data)) } else { wanted };
            if needs_restore && asked.len() < self.shape.data {
                return Err(io::Error::other("too few devices of the array can be read"));
            }
            let rows_of = |number| if needs_restore { span.rows() } else { span.rows_of(number) };
            let (units, failed) = self.read_units(wait, asked, rows_of).await;
            if !failed.members.is_empty() {
                self.log_failures(&failed);
                left = left.without(failed.members);
                if left.union(last_resort).len() < self.shape.data {
                    // Each of the members may have failed another row.
                    return match span.rows().1 {
                        0 | 1 => Err(failed.into_error()),
                        _ => self.read_rows_singly(wait, at, into, excluded).await,
                    };
                }
                unreadable.extend(failed.members.iter().map(|member| {
                    let (first, rows) = rows_of(member);
                    UnreadableUnits { member, first, rows }
                }));
                continue;
            }
            let units = if needs_restore { self.restored(wait, units).await? } else { units };
            for (number, units) in units.iter().enumerate().take(self.shape.data) {
                if let Some(units) = units {
                    span.scatter(number, rows_of(number).0, units, into);
                }
            }
            break;
        }
        if excluded.is_empty() && (is_avoiding || !unreadable.is_empty()) {
            self.health.count_indirect_read();
        }
        if !self.read_only && !unreadable.is_empty() {
            for line in self.rewrite_unreadable(wait, &unreadable).await {
                tracing::warn!("{line}");
            }
        }
        Ok(())
    }

    /// Computes the missing units of rows from the others.
    async fn restored(&self, wait: Wait, units: Vec<Option<Buffer>>) -> io::Result<Vec<Option<Buffer>>> {
        let shape = self.shape;
        let bytes: usize = units.iter().flatten().map(|units| units.len()).sum();
        let compute = move || Ok(erasure_code::restore(shape, units)?.into_iter().map(Some).collect());
        let is_long = bytes > COMPUTE_IN_PLACE_BYTES_MAX;
        if is_long && wait == Wait::Async { store::blocking(compute).await } else { compute() }
    }

    /// Reads units of some members. `rows_of` gives the first row and the number of rows for each member. Returns the
    /// units by member number, `None` for members that were not read or failed.
    async fn read_units(
        &self,
        wait: Wait,
        selected: Members,
        rows_of: impl Fn(usize) -> (u64, usize),
    ) -> (Vec<Option<Buffer>>, MemberFailures) {
        let mut units: Vec<Option<Buffer>> = (0..self.shape.members()).map(|_| None).collect();
        let mut failed = MemberFailures::default();
        let reads = self.present(selected).map(|(number, member)| {
            let (first, rows) = rows_of(number);
            async move { (number, member.read(wait, position_of(first), rows * UNIT_BYTES).await) }
        });
        for (number, read) in join_all(reads).await {
            match read {
                Ok(read) => {
                    self.health.count_success(number);
                    units[number] = Some(read);
                }
                Err(error) => failed.add(number, error),
            }
        }
        (units, failed)
    }

    /// Calls a function for some members concurrently.
    async fn on_each_member<F: Future<Output = io::Result<()>>>(
        &self,
        selected: Members,
        act: impl Fn(usize, Member) -> F,
    ) -> MemberFailures {
        let acts = self.present(selected).map(|(number, member)| {
            let act = act(number, member);
            async move { (number, act.await) }
        });
        let mut failed = MemberFailures::default();
        for (number, outcome) in join_all(acts).await {
            if let Err(error) = outcome {
                failed.add(number, error);
            }
        }
        failed
    }

    /// Excludes members that failed. When this succeeds, the labels of the other members say so durably. Fails if too
    /// few members are left, or if the array is open read-only.
    async fn exclude(&self, wait: Wait, failed: MemberFailures) -> io::Result<()> {
        if failed.members.is_empty() && !self.labels_outdated.load(Ordering::SeqCst) {
            return Ok(());
        }
        if self.read_only {
            return Err(failed.into_error());
        }
        let mut label = self.label.lock().await;
        let newly_failed =
            Members::of(failed.members.iter().filter(|&number| self.in_sync().contains(number)));
        if newly_failed.is_empty() && !self.labels_outdated.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.write_new_labels(wait, &mut label, MemberFailures { members: newly_failed, ..failed }).await
    }

    /// Writes labels of a new epoch, without the failed members, until all remaining members have one.
    async fn write_new_labels(
        &self,
        wait: Wait,
        label: &mut Label,
        mut failed: MemberFailures,
    ) -> io::Result<()> {
        loop {
            let left = self.in_sync().without(failed.members);
            if left.len() < self.shape.data {
                return Err(failed.into_error());
            }
            if let Some(error) = &failed.error {
                tracing::error!(members = ?self.names(failed.members), %error, "devices failed and are excluded from the array");
            }
            label.epoch += 1;
            for (number, id) in label.members.iter_mut().enumerate() {
                *id = if left.contains(number) { *id } else { NO_DEVICE };
            }
            self.labels_outdated.store(true, Ordering::SeqCst);
            *self.in_sync.write().unwrap_or_else(PoisonError::into_inner) = left;
            self.close_excluded(left);
            let next = label.clone();
            failed = self
                .on_each_member(left, |number, member| member.write_label(wait, next.clone(), number))
                .await;
            if failed.members.is_empty() {
                self.labels_outdated.store(false, Ordering::SeqCst);
                return Ok(());
            }
        }
    }

    /// Closes the devices of members that are not left, so that they can be rebuilt, and keeps their names.
    fn close_excluded(&self, left: Members) {
        let mut members = self.members.write().unwrap_or_else(PoisonError::into_inner);
        let mut stale = self.stale.write().unwrap_or_else(PoisonError::into_inner);
        for (number, (member, stale)) in members.iter_mut().zip(stale.iter_mut()).enumerate() {
            if !left.contains(number)
                && let Some(excluded) = member.take()
            {
                *stale = Some(excluded.name);
            }
        }
    }

    /// Returns the members that have all that was written.
    fn in_sync(&self) -> Members {
        *self.in_sync.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns those of the selected members that have a device.
    fn present(&self, selected: Members) -> impl Iterator<Item = (usize, Member)> {
        let members = self.members.read().unwrap_or_else(PoisonError::into_inner);
        let present = selected.iter().filter_map(|number| Some((number, members.get(number)?.clone()?)));
        present.collect::<Vec<_>>().into_iter()
    }

    /// Returns the device names of the selected members.
    fn names(&self, selected: Members) -> Vec<String> {
        self.present(selected).map(|(_, member)| member.name).collect()
    }
}

/// Returns the units of each member for whole rows.
fn units_of(shape: Shape, rows: &[u8]) -> io::Result<Vec<Bytes>> {
    let mut units = shape.split(rows);
    units.extend(erasure_code::parity(shape, &units)?);
    Ok(units.into_iter().map(Bytes::from).collect())
}

/// Returns the position of a row on each member, in bytes.
fn position_of(row: u64) -> u64 {
    ROWS_AT + row * UNIT_BYTES as u64
}

impl MemberFailures {
    fn add(&mut self, number: usize, error: io::Error) {
        self.members = self.members.union(Members::of([number]));
        self.error.get_or_insert(error);
    }

    fn into_error(self) -> io::Error {
        self.error.unwrap_or_else(|| io::Error::other("too few devices of the array are usable"))
    }
}

impl Member {
    fn new(name: String, id: u64, io: &Io) -> Self {
        let ring = if let Io::Ring(ring) = io { Some(ring.clone()) } else { None };
        Self { name, id, ring, device: io.device() }
    }

    async fn read(&self, wait: Wait, at: u64, bytes: usize) -> io::Result<Buffer> {
        let mut into = Buffer::zeroed(bytes);
        match (&self.ring, wait) {
            (Some(ring), _) => ring.read(at, into).await,
            (None, Wait::Blocking) => self.device.read_at(at, &mut into).map(|()| into),
            (None, Wait::Async) => {
                let device = self.device.clone();
                store::blocking(move || device.read_at(at, &mut into).map(|()| into)).await
            }
        }
    }

    async fn write(&self, wait: Wait, at: u64, units: Bytes) -> io::Result<()> {
        match (&self.ring, wait) {
            (Some(ring), _) => ring.write(at, units).await,
            (None, Wait::Blocking) => self.device.write_at(at, &units),
            (None, Wait::Async) => {
                let device = self.device.clone();
                store::blocking(move || device.write_at(at, &units)).await
            }
        }
    }

    async fn flush(self, wait: Wait) -> io::Result<()> {
        match (&self.ring, wait) {
            (Some(ring), _) => ring.flush().await,
            (None, Wait::Blocking) => self.device.flush(),
            (None, Wait::Async) => store::blocking(move || self.device.flush()).await,
        }
    }

    /// Writes and flushes the two copies of the label in turn, so that one is intact at any time.
    async fn write_label(self, wait: Wait, label: Label, index: usize) -> io::Result<()> {
        let block = Bytes::from(Label { own: self.id, index, ..label }.encode());
        for copy in [0, UNIT_BYTES as u64] {
            self.write(wait, copy, block.clone()).await?;
            self.clone().flush(wait).await?;
        }
        Ok(())
    }
}

impl BlockDevice for Array {
    fn len_bytes(&self) -> u64 {
        self.rows * self.shape.row_bytes()
    }

    fn row_bytes(&self) -> u64 {
        self.shape.row_bytes()
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        block_on(self.read_excluding(Wait::Blocking, at, into, Members::default()))
    }

    fn write_at(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.check_rows(at, from.len())?;
        block_on(self.write_units(Wait::Blocking, at, units_of(self.shape, from)?))
    }

    fn flush(&self) -> io::Result<()> {
        block_on(self.flush_all(Wait::Blocking))
    }

    fn has_redundancy(&self) -> bool {
        self.shape.parity > 0
    }

    fn reconstruct(&self, attempt: &mut dyn FnMut(&mut AlternateReader<'_>) -> bool) -> bool {
        let members = if self.has_redundancy() { self.shape.members() } else { 0 };
        (0..members).any(|member| self.reconstruct_without(member, attempt))
    }

    fn scrub_rows(&self, at: u64, len_bytes: u64, is_verified: bool) -> io::Result<ScrubbedRows> {
        block_on(self.scrub_rows_of(Wait::Blocking, at, len_bytes, is_verified))
    }

    fn read_directly(&self, always: bool) {
        self.health.read_directly(always);
    }

    fn indirect_reads(&self) -> u64 {
        self.health.indirect_reads()
    }

    fn repaired_blocks(&self) -> u64 {
        self.repaired.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shape, rows, members, .. } = self;
        f.debug_struct("Array")
            .field("shape", shape)
            .field("rows", rows)
            .field("members", members)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
