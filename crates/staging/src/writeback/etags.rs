//! The etags that were issued for objects and those that the bucket gave them, and the observer of the latter.
//!
//! Callers know an object by a provisional etag until it is uploaded. An owner of names that takes over the bucket's etag then knows
//! the object after a restart too, when the log has forgotten the provisional one.
//!
//! Invariant: the log keeps the record of an upload until its etag was reported, if there is an observer.

use super::Writeback;
use crate::etag_aliases::EtagAliases;
use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use store::{ETag, ObjectKey};

/// Gets a key, the provisional etag and the bucket's etag. Returns whether callers use the bucket's etag from now on.
type Report = dyn Fn(&ObjectKey, &ETag, &ETag) -> bool + Send + Sync;

/// Both etags of each object, and the observer, if one is set.
pub(super) struct Etags {
    aliases: Mutex<EtagAliases>,
    observer: OnceLock<Box<Report>>,
}

impl Etags {
    /// Returns the etags that a replay of the log has found.
    pub(super) fn of(aliases: EtagAliases) -> Self {
        Self { aliases: Mutex::new(aliases), observer: OnceLock::new() }
    }

    pub(super) fn aliases(&self) -> MutexGuard<'_, EtagAliases> {
        self.aliases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports the etag of an uploaded object to the observer.
    pub(super) fn report(&self, key: &ObjectKey) {
        if let Some(report) = self.observer.get() {
            self.aliases().report_key(key, report);
        }
    }
}

impl fmt::Debug for Etags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etags").field("aliases", &self.aliases).finish_non_exhaustive()
    }
}

impl Writeback {
    /// Sets the observer, and reports what the log knows of uploads before it was opened. `report` gets a key, the provisional etag that
    /// was issued for its object, and the etag that the object has in the bucket. It returns whether callers use the bucket's etag
    /// from then on; if it returns false, they go on with the provisional one until the log is closed. It must not call the store.
    /// Only the first call has an effect, and none if keys are used once.
    pub fn set_etag_observer(
        &self,
        report: impl Fn(&ObjectKey, &ETag, &ETag) -> bool + Send + Sync + 'static,
    ) {
        if self.options.keys_are_used_once || self.etags.observer.set(Box::new(report)).is_err() {
            return;
        }
        let restored = self.etags.aliases().keys();
        for key in &restored {
            self.etags.report(key);
        }
        if !restored.is_empty()
            && let Err(error) = self.log.reclaim()
        {
            tracing::warn!(%error, "cannot remove segments of the write-back log that are not needed any more; they take disk space until the next attempt");
        }
    }
}
