//! Agreement with the namespace after a restart: it may know more than the journal, or have lost what the journal has.

use super::candidate::Candidate;
use super::{MoveObserver, Mover};
use store::{ETag, ObjectKey, StoreError};

impl Mover {
    /// Sets the namespace that also records where objects are, and reports to it the etags of objects that were copied before the journal
    /// was opened. Only the first call has an effect.
    pub fn set_observer(&self, observer: MoveObserver) {
        let callbacks = observer.conflicts.clone();
        if self.executor.observer.set(observer).is_ok() {
            self.executor.decisions.set_callbacks(callbacks);
            let copied = self.executor.aliases().keys();
            for key in copied {
                self.executor.report_arrival(key.as_bytes());
                self.rename_etag_at_sources(&key);
            }
        }
    }

    /// Compares the moves that an earlier process left with the namespace. `is_named` returns whether the namespace has an object of an etag at
    /// a key.
    ///
    /// Drops the moves that delete objects which the namespace has: the rename that had copied one elsewhere was not committed, or lost. Notes
    /// the etags of copies that the namespace has already: the earlier process had reported them before the objects were renamed again.
    pub fn compare_with_names<E: From<StoreError>>(
        &self,
        is_named: impl Fn(&[u8], &ETag) -> Result<bool, E>,
    ) -> Result<(), E> {
        let deletions = self.executor.state().moves.sole_deletions();
        for (number, from, etag) in deletions {
            if is_named(&from, &etag)? {
                self.executor.state().drop_move(number)?;
            }
        }
        let copies = self.executor.aliases().unreported();
        for (key, etag) in copies {
            let renamed_to = self.visible_key(&key).filter(|visible| *visible != key);
            if let Some(visible) = renamed_to
                && is_named(visible.as_bytes(), &etag)?
            {
                self.executor.aliases().report_key(&key, |_, _, _| true);
                self.rename_etag_at_sources(&key);
            }
        }
        Ok(())
    }

    /// Shows an object by the reported etag of its copy, also while the object may still be at a key from which it was copied.
    fn rename_etag_at_sources(&self, copy: &ObjectKey) {
        let Some(visible) = self.visible_key(copy) else { return };
        let is_source = |candidate: &Candidate| candidate.by_move.is_some() && candidate.key != *copy;
        let sources = self.candidates(&visible).into_iter().filter(is_source);
        let mut aliases = self.executor.aliases();
        let Some((issued, reported)) = aliases.replaced_tag(copy) else { return };
        for Candidate { key, .. } in sources {
            let there = aliases.bucket_tag(&key, &issued);
            aliases.show_as(&key, reported.clone(), there);
        }
    }
}
