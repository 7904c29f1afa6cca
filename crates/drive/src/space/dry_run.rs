//! Dry run of changes: applies them to the space and undoes them.
//!
//! A commit does this before it writes its frame, because a frame that contradicts the space could never be replayed.

use super::{Allocation, Space};
use crate::format::{Change, Run};

/// A change that was applied, with the former state of its run or zone.
enum Undo {
    /// The run was reserved by this allocation.
    Reserved(Run, Allocation),
    /// The run was pending free, or free.
    PendingFree(Run),
    Free(Run),
    /// A shared run has one owner more, or less.
    SharedMore(Run),
    SharedLess(Run),
    /// The run had a single owner and became pending free, or free.
    BecamePendingFree(Run),
    Freed(Run),
    /// Inline data of a zone became unused.
    Dead {
        zone: u64,
        len: u32,
    },
    Nothing,
}

impl Space {
    /// Returns whether [`retain`](Self::retain), [`release`](Self::release) and [`mark_dead`](Self::mark_dead) would succeed for all
    /// changes, in order. The space is the same afterwards.
    pub(crate) fn can_apply(&mut self, changes: &[Change]) -> bool {
        let mut done = Vec::with_capacity(changes.len());
        let fits = changes.iter().all(|change| {
            let undo = self.try_change(change);
            let fits = undo.is_some();
            done.extend(undo);
            fits
        });
        done.into_iter().rev().for_each(|undo| self.undo(undo));
        fits
    }

    /// Applies a change. Returns `None`, and changes nothing, if the change contradicts the space.
    fn try_change(&mut self, change: &Change) -> Option<Undo> {
        match *change {
            Change::Put { .. } | Change::Delete { .. } => Some(Undo::Nothing),
            Change::Dead { at, len } => {
                self.mark_dead(at, len).then_some(Undo::Dead { zone: at / self.geometry.zone_bytes(), len })
            }
            Change::Retain(run) => {
                let reservation =
                    self.reservations.get(&run.start).filter(|(blocks, _)| *blocks == run.blocks);
                let undo = if let Some(&(_, allocation)) = reservation {
                    Undo::Reserved(run, allocation)
                } else if self.pending_free.get(&run.start) == Some(&run.blocks) {
                    Undo::PendingFree(run)
                } else if self.free.contains(run) {
                    Undo::Free(run)
                } else {
                    Undo::SharedMore(run)
                };
                self.retain(run).then_some(undo)
            }
            Change::Release(run) => {
                let undo = if let Some(&(shared, _)) = self.shared.get(&run.start) {
                    Undo::SharedLess(shared)
                } else if self.pending_free.contains_key(&run.start) {
                    // The run has no owner any more.
                    return None;
                } else if self.must_stay_taken(run) {
                    Undo::BecamePendingFree(run)
                } else {
                    Undo::Freed(run)
                };
                self.release(run).then_some(undo)
            }
        }
    }

    /// Takes back one step of the dry run.
    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Reserved(run, allocation) => {
                self.reservations.insert(run.start, (run.blocks, allocation));
            }
            Undo::PendingFree(run) => drop(self.pending_free.insert(run.start, run.blocks)),
            Undo::Free(run) => drop(self.free.insert(run)),
            Undo::SharedMore(run) => drop(self.release(run)),
            Undo::SharedLess(run) => self.shared.entry(run.start).or_insert((run, 0)).1 += 1,
            Undo::BecamePendingFree(run) => drop(self.pending_free.remove(&run.start)),
            Undo::Freed(run) => drop(self.free.remove(run)),
            Undo::Dead { zone, len } => self.log_zones.unmark_dead(zone, len),
            Undo::Nothing => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Geometry, Zone};

    /// A commit released blocks that were free already. That was noticed when its frame was on the device, and the drive could not be
    /// opened again. The dry run notices it before, and leaves the space exactly as it was.
    #[test]
    fn s494_a_dry_run_finds_contradictions_and_leaves_the_space_unchanged() {
        let mut space = Space::new(Geometry { blocks: 4096, zone_blocks: 256, row_blocks: 1 });
        space.begin_log().unwrap();
        let run = |start, blocks| Run { start, blocks };
        let (owned, _) = space.allocate(8, 8, 0).unwrap();
        let (shared, _) = space.allocate(4, 4, 0).unwrap();
        let (pinned, _) = space.allocate(4, 4, 0).unwrap();
        let (reserved, _) = space.allocate(2, 2, 0).unwrap();
        for run in [owned, shared, shared, pinned] {
            assert!(space.retain(run));
        }
        space.pin(pinned.start);
        let head = space.log_zones.head();
        space.log_zones.set(head, Zone { live_bytes: 100, inline_bytes: 100, ..Zone::default() });
        let before = format!("{space:?}");
        let dead = |len| Change::Dead { at: head * 256 * 4096, len };
        let free = run(3000, 5);
        let cases = [
            (vec![Change::Release(owned)], true),
            (vec![Change::Release(owned), Change::Release(owned)], false),
            (vec![Change::Release(free)], false),
            (vec![Change::Retain(free), Change::Release(free)], true),
            (vec![Change::Release(shared), Change::Release(shared)], true),
            (vec![Change::Release(shared), Change::Release(shared), Change::Release(shared)], false),
            (vec![Change::Retain(reserved), Change::Retain(reserved), Change::Release(reserved)], true),
            (vec![Change::Release(pinned), Change::Retain(pinned)], true),
            (vec![Change::Release(pinned), Change::Release(pinned)], false),
            (vec![Change::Retain(run(4090, 100))], false),
            (vec![dead(60), dead(40)], true),
            (vec![dead(60), dead(41)], false),
            (vec![Change::Delete { key: b"k".to_vec() }], true),
        ];
        for (changes, fits) in cases {
            assert_eq!(space.can_apply(&changes), fits, "{changes:?}");
            assert_eq!(format!("{space:?}"), before, "{changes:?}");
        }
    }
}
