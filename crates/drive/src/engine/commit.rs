//! Commit: makes several changes durable by one write and one flush, and then visible.

use super::{Engine, InlinePut, Prepared};
use crate::device::Buffer;
use crate::error::{Error, Result};
use crate::format::{Body, Change, FRAME_HEADER_BYTES, FrameHeader, FrameWriter};
use crate::log::{FramePlace, LogState};
use crate::policy::{Admission, Demand, Refusal};
use crate::space::lock;
use std::sync::atomic::Ordering;

impl Engine {
    /// Makes all changes durable, then visible, and empties the batch. After [`Error::Full`] (the log has no room) or
    /// [`Error::IndexUnwritable`] (the index cannot grow) nothing has changed, and the batch is as it was.
    pub(crate) fn commit(&self, batch: &mut Vec<Prepared>) -> Result<()> {
        self.check_writable()?;
        let mut log = self.log.lock();
        let demand = demand_of(batch);
        let place = self.place(&log, demand, batch.iter().map(Prepared::index_bytes).sum())?;
        let memory = self.buffers.fill(demand.frame_bytes as usize, self.geometry.row_bytes());
        let mut frame = FrameWriter::new(place.at, memory);
        let mut changes = Vec::new();
        let mut held = Vec::new();
        for prepared in batch.drain(..) {
            for put in prepared.inline_puts {
                changes.push(encode_inline(&mut frame, put));
            }
            changes.extend(prepared.changes);
            held.push(prepared.holds);
        }
        if !self.can_apply(&changes) {
            // Once written, a frame that contradicts the space could never be replayed: the drive could not be opened again.
            let what =
                "the changes contradict the state of the space and were not written: run 'tenon drive check'";
            return Err(self.device.fail(Error::Unsuitable(what.into())));
        }
        changes.iter().for_each(|change| frame.change(change));
        let last_write = self.last_write.load(Ordering::Relaxed);
        let (rows, header) = frame.finish(self.drive, log.next_frame, place.next_zone, last_write);
        assert_eq!(rows.len() as u64, self.geometry.frame_bytes(&header), "a frame is whole rows");
        let names_runs = changes.iter().any(|change| matches!(change, Change::Retain(_)));
        if let Err(error) = self.write_frame(&place, &rows, names_runs) {
            // The frame may be on the device all the same, so the blocks it names must not be allocated until the drive is opened again.
            std::mem::forget(held);
            return Err(error);
        }
        self.record_frame(&mut log, &place, &header);
        let applied = self.apply(changes);
        drop(held);
        match applied {
            true => Ok(()),
            false => {
                let what = "a frame of the log, which contradicts earlier frames,";
                Err(self.device.fail(Error::damaged(what, place.at)))
            }
        }
    }

    /// Decides where a frame goes, and takes a zone for the log if the frame begins the next one. `index_bytes` is what the changes add to
    /// the memtable.
    fn place(&self, log: &LogState, demand: Demand, index_bytes: u64) -> Result<FramePlace> {
        let index = self.index.size();
        let mut space = lock(&self.space);
        self.reserve_for_checkpoint(&mut space, index, index_bytes);
        let admission = self.policy.admit_commit(&self.usage_of(index, log, &space), demand);
        match admission.map_err(|refusal| refused(refusal, demand))? {
            Admission::InHeadZone => Ok(FramePlace {
                at: self.geometry.zone_at(space.log_zones().head()) + log.head_at,
                in_zone: log.head_at,
                next_zone: space.log_zones().next(),
                advances: false,
            }),
            Admission::InNextZone => {
                let next_zone = space.take_zone()?;
                let at = self.geometry.zone_at(space.log_zones().next());
                Ok(FramePlace { at, in_zone: 0, next_zone, advances: true })
            }
        }
    }

    /// Writes a frame. The data of its runs is flushed first, so that no frame refers to data that is not durable.
    fn write_frame(&self, place: &FramePlace, rows: &Buffer, names_runs: bool) -> Result<()> {
        if names_runs {
            self.device.flush(place.at)?;
        }
        self.device.write(place.at, rows)?;
        self.device.flush(place.at)
    }

    /// Records a frame that is durable, in the log and in the statistics of its zone.
    pub(super) fn record_frame(&self, log: &mut LogState, place: &FramePlace, header: &FrameHeader) {
        let mut space = lock(&self.space);
        let zones = space.log_zones_mut();
        if place.advances {
            zones.advance(place.next_zone);
        }
        let end = log.record(place, header, self.geometry);
        zones.record_frame(header, end);
    }

    /// Returns whether the space admits these changes. Nothing is changed.
    pub(super) fn can_apply(&self, changes: &[Change]) -> bool {
        lock(&self.space).can_apply(changes)
    }

    /// Applies changes to the index first, then to the space: a reader that has pinned blocks looks at the index again to see whether they
    /// still belong to the entry. Returns false if the changes contradict the space.
    pub(super) fn apply(&self, changes: Vec<Change>) -> bool {
        let mut of_space = Vec::new();
        for change in changes {
            match change {
                Change::Put { key, value } => self.index.insert(key, value),
                Change::Delete { key } => self.index.insert(key, Vec::new()),
                change => of_space.push(change),
            }
        }
        let mut space = lock(&self.space);
        let fits = of_space.into_iter().all(|change| match change {
            Change::Retain(run) => space.retain(run),
            Change::Release(run) => space.release(run),
            Change::Dead { at, len } => space.mark_dead(at, len),
            Change::Put { .. } | Change::Delete { .. } => true,
        });
        space.free_dead_zones();
        fits
    }
}

/// Returns what a batch of changes asks of the log, for admission control.
fn demand_of(batch: &[Prepared]) -> Demand {
    Demand {
        purpose: batch.iter().map(|prepared| prepared.purpose).max().unwrap_or_default(),
        has_inline: batch.iter().any(|prepared| !prepared.inline_puts.is_empty()),
        frame_bytes: FRAME_HEADER_BYTES as u64 + batch.iter().map(Prepared::frame_bytes).sum::<u64>(),
    }
}

/// Returns the error for a batch that the policy refuses.
fn refused(refusal: Refusal, demand: Demand) -> Error {
    match refusal {
        Refusal::Full => Error::Full,
        Refusal::IndexUnwritable => Error::IndexUnwritable("checkpoints fail one after the other".into()),
        Refusal::FrameTooLong => Error::Unsuitable(format!(
            "the changes were not written: they take {} bytes, more than a zone has",
            demand.frame_bytes
        )),
    }
}

/// Adds the bytes of a small object to a frame, and returns the change that stores its record.
fn encode_inline(frame: &mut FrameWriter, put: InlinePut) -> Change {
    let InlinePut { key, mut record, bytes, frame_bytes } = put;
    let at = frame.push_inline(&bytes, frame_bytes - bytes.len() as u64);
    let Body::Inline(inline) = &mut record.body else {
        unreachable!("the record of an object whose bytes go into a frame has an inline body")
    };
    // Paired with the read of the frame: `len` bytes from `at` on are the object's.
    assert_eq!(inline.len as usize, bytes.len(), "the record has the length of its bytes");
    inline.at = at;
    Change::Put { key: key.0, value: record.encode() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{BlockDevice, FileDevice};
    use crate::engine::{FormatOptions, OpenOptions};
    use crate::format::Run;
    use std::sync::Arc;
    use store::Entropy;

    /// A commit released blocks that were free. This was noticed only when its frame was on the device, so the drive could not be opened again.
    #[test]
    fn s494_a_commit_that_contradicts_the_space_writes_nothing_and_ends_all_writes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("drive");
        let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::create(&path, 64 << 20).unwrap());
        Engine::format(&device, FormatOptions::default(), &Entropy::new(7)).unwrap();
        let engine = Engine::open(device.clone(), OpenOptions::default()).unwrap();
        let batch = |change| vec![Prepared { changes: vec![change], ..Prepared::default() }];
        engine.commit(&mut batch(Change::Delete { key: b"a".to_vec() })).unwrap();
        let before = std::fs::read(&path).unwrap();
        let free = Run { start: engine.geometry.blocks / 2, blocks: 5 };
        let refused = engine.commit(&mut batch(Change::Release(free))).unwrap_err();
        assert!(refused.to_string().contains("contradict the state of the space"), "{refused}");
        engine.commit(&mut batch(Change::Delete { key: b"b".to_vec() })).unwrap_err();
        assert!(std::fs::read(&path).unwrap() == before, "something was written");
        drop(engine);
        let engine = Engine::open(device, OpenOptions::default()).unwrap();
        engine.commit(&mut batch(Change::Delete { key: b"b".to_vec() })).unwrap();
    }
}
