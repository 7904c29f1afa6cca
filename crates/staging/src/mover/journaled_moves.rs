//! The moves and their journal, changed together.

use super::journal::Journal;
use super::move_observer::NamingError;
use super::moves::{Move, Moves, Step};
use crate::etag_aliases::EtagAliases;
use std::collections::VecDeque;
use std::io;
use store::{ETag, ObjectKey, Result, StoreError};

/// Completed moves to remember. Must exceed the number that can complete during one LIST request.
const RECENTLY_DONE_MAX: usize = 4096;

/// The unfinished moves, and the journal that has each step before it is applied.
#[derive(Debug)]
pub(super) struct JournaledMoves {
    pub(super) moves: Moves,
    pub(super) journal: Journal,
    /// Completed moves whose `Done` step is not synced yet, with the journal's length after that step. The journal is
    /// synced before a new object is stored at their physical keys: after a loss of power the move would otherwise
    /// run again and take the new object away.
    unsynced_done: Vec<(Move, u64)>,
    /// The journal's length after its last `Copied` step that is not synced yet.
    unsynced_copied: Option<u64>,
    /// The last completed moves, each with its number. They are kept because a LIST request that ran while a move
    /// completed may show the object at its old key.
    recently_done: VecDeque<(u64, Move)>,
    /// Number of moves that were completed before these and are no longer kept.
    forgotten_done: u64,
    /// Etags that the store gave to objects at their old keys, by those that it had issued before: an object may be copied by an etag that
    /// a listing showed earlier.
    pub(super) renewed_etags: EtagAliases,
}

impl JournaledMoves {
    pub(super) fn new(journal: Journal, moves: Moves) -> Self {
        let (unsynced_done, unsynced_copied, recently_done, forgotten_done, renewed_etags) =
            Default::default();
        Self { moves, journal, unsynced_done, unsynced_copied, recently_done, forgotten_done, renewed_etags }
    }

    /// Appends steps to the journal and applies them. Nothing is applied if appending fails.
    pub(super) fn record(&mut self, steps: Vec<Step>) -> Result<()> {
        self.append(&steps)?;
        self.apply(steps);
        Ok(())
    }

    /// Appends steps to the journal without applying them.
    fn append(&mut self, steps: &[Step]) -> Result<()> {
        // A replay refuses a journal whose steps are out of order, so none may be written.
        assert!(
            steps.iter().all(|step| self.moves.is_in_order(step)),
            "renames are journaled in their order"
        );
        self.journal.append(steps).map_err(failed)
    }

    /// Applies steps that are in the journal, and shortens the journal if it is worthwhile.
    fn apply(&mut self, steps: Vec<Step>) {
        self.moves.apply_new(steps);
        if let Err(error) = self.journal.compact(&self.moves) {
            // The old journal stays valid, only longer.
            tracing::warn!(%error, "cannot rewrite the journal of moves; the old file stays in use");
        }
    }

    /// Records that an object was copied and has another etag at its new key. The object at its old key may be deleted once this is synced.
    pub(super) fn record_copied(&mut self, to: ObjectKey, issued: ETag, bucket: ETag) -> Result<()> {
        self.record(vec![Step::Copied { to, issued, bucket }])?;
        self.unsynced_copied = Some(self.journal.log.appended());
        Ok(())
    }

    /// Returns whether a loss of power could lose the etag of a copy.
    pub(super) fn has_unsynced_copies(&self) -> bool {
        self.unsynced_copied.is_some()
    }

    /// Ends an executed move.
    pub(super) fn finish(&mut self, number: u64) -> Result<()> {
        let mv = self.moves.get(number).cloned();
        self.record(vec![Step::Done { number }])?;
        self.unsynced_done.extend(mv.clone().map(|mv| (mv, self.journal.log.appended())));
        self.recently_done.extend(mv.map(|mv| (number, mv)));
        if self.recently_done.len() > RECENTLY_DONE_MAX {
            self.recently_done.pop_front();
            self.forgotten_done += 1;
        }
        Ok(())
    }

    /// Ends a move without executing it, unless it has ended.
    pub(super) fn drop_move(&mut self, number: u64) -> Result<()> {
        match self.moves.get(number) {
            Some(_) => self.finish(number),
            None => Ok(()),
        }
    }

    /// Returns the number of completed moves.
    pub(super) fn done_count(&self) -> u64 {
        self.forgotten_done + self.recently_done.len() as u64
    }

    /// Returns whether an object was moved away from a key, or from below a prefix that ends in `/`, after the first
    /// `since` completed moves, by a move with a number below `before`.
    pub(super) fn was_moved_since(&self, since: u64, before: u64, place: &[u8]) -> bool {
        let first = since.saturating_sub(self.forgotten_done) as usize;
        self.recently_done.iter().skip(first).any(|(number, mv)| *number < before && mv.overlaps(place))
    }

    /// Returns whether an object was moved away from a key, or from below a prefix, and the journal could lose that
    /// with the power.
    pub(super) fn has_unsynced_done(&self, place: &[u8]) -> bool {
        self.unsynced_done.iter().any(|(mv, _)| mv.overlaps(place))
    }

    /// Notes that the first `appended` bytes that this process appended to the journal are synced.
    pub(super) fn mark_synced(&mut self, appended: u64) {
        self.journal.log.mark_synced(appended);
        self.unsynced_done.retain(|(_, at)| *at > appended);
        self.unsynced_copied = self.unsynced_copied.filter(|at| *at > appended);
    }

    /// Appends the steps that `plan` returns, runs `name`, and applies the steps if `name` succeeds or its failure is
    /// uncertain; otherwise the journal is cut back. The journal is written first: a crash in between leaves a rename
    /// that was never acknowledged. Moves that the rename ends are recorded as done when `name` has succeeded: until then the journal has
    /// their objects on the way back to their own keys, so that a crash in between leaves that rename too.
    pub(super) fn rename<T, E: NamingError>(
        &mut self,
        sync_first: bool,
        plan: impl FnOnce(&Moves) -> Vec<Step>,
        name: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let steps = plan(&self.moves);
        let end = self.journal.log.end();
        let is_end = |step: &Step| matches!(step, Step::Done { .. });
        let (ended, mut unended): (Vec<Step>, Vec<Step>) = steps.iter().cloned().partition(is_end);
        unended.extend(ended.iter().filter_map(|step| self.moves.return_of(step)));
        self.append(&unended)?;
        let synced = if sync_first { self.sync() } else { Ok(()) };
        match synced.map_err(E::from).and_then(|()| name()) {
            Ok(done) => {
                if !ended.is_empty()
                    && let Err(error) = self.append(&ended)
                {
                    tracing::warn!(%error, "the end of a move cannot be recorded; after a restart it ends again");
                }
                self.apply(steps);
                Ok(done)
            }
            Err(error) if error.is_uncertain() => {
                self.apply(steps);
                Err(error)
            }
            Err(error) => {
                self.journal.log.truncate_to(end).map_err(failed)?;
                Err(error)
            }
        }
    }

    fn sync(&mut self) -> Result<()> {
        let appended = self.journal.log.appended();
        if let Some(file) = self.journal.log.file_to_sync().map_err(failed)? {
            file.sync_data().map_err(failed)?;
        }
        self.mark_synced(appended);
        Ok(())
    }
}

pub(super) fn failed(error: io::Error) -> StoreError {
    StoreError::of_log("the journal of moves", error)
}
