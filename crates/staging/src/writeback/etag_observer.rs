//! The observer of the etags that the bucket gives to uploaded objects.
//!
//! Callers know an object by a provisional etag until it is uploaded. An owner of names that takes over the bucket's etag then knows
//! the object after a restart too, when the log has forgotten the provisional one.
//!
//! Invariant: the log keeps the record of an upload until its etag was reported, if there is an observer.

use super::Writeback;
use std::fmt;
use std::sync::OnceLock;
use store::{ETag, ObjectKey};

/// Gets a key, the provisional etag and the bucket's etag. Returns whether callers use the bucket's etag from now on.
type Report = dyn Fn(&ObjectKey, &ETag, &ETag) -> bool + Send + Sync;

/// The observer, if one is set.
#[derive(Default)]
pub(super) struct EtagObserver(OnceLock<Box<Report>>);

impl fmt::Debug for EtagObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EtagObserver")
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
        if self.options.keys_are_used_once || self.etag_observer.0.set(Box::new(report)).is_err() {
            return;
        }
        let restored = self.aliases().keys();
        for key in &restored {
            self.report_etag(key);
        }
        if !restored.is_empty()
            && let Err(error) = self.log.reclaim()
        {
            tracing::warn!(%error, "cannot remove segments of the write-back log that are not needed any more; they take disk space until a later try");
        }
    }

    /// Reports the etag of an uploaded object to the observer.
    pub(super) fn report_etag(&self, key: &ObjectKey) {
        if let Some(report) = self.etag_observer.0.get() {
            self.aliases().report_key(key, report);
        }
    }
}
