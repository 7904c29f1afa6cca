//! Tracks the calls in flight that change objects, by key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use store::ObjectKey;

/// The keys that are being changed.
#[derive(Debug, Default)]
pub(super) struct Underway(Mutex<HashMap<Place, Calls>>);

type Place = (String, ObjectKey);

#[derive(Debug, Default)]
struct Calls {
    count: usize,
    /// Whether calls of the key have overlapped since it was last idle.
    were_several: bool,
}

impl Underway {
    fn calls(&self) -> MutexGuard<'_, HashMap<Place, Calls>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a call that is about to change an object.
    pub(super) fn begin(self: &Arc<Self>, bucket: &str, key: &ObjectKey) -> Turn {
        let place = (bucket.to_owned(), key.clone());
        let mut all = self.calls();
        let calls = all.entry(place.clone()).or_default();
        calls.count += 1;
        calls.were_several |= calls.count > 1;
        drop(all);
        Turn { underway: Arc::clone(self), place }
    }
}

/// A registered call. It ends when its change has a sequence.
#[derive(Debug)]
pub(super) struct Turn {
    underway: Arc<Underway>,
    place: Place,
}

impl Turn {
    pub(super) fn key(&self) -> &ObjectKey {
        &self.place.1
    }

    /// Whether another call of the same key overlapped with this one.
    pub(super) fn is_crowded(&self) -> bool {
        self.underway.calls().get(&self.place).is_some_and(|calls| calls.were_several)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut all = self.underway.calls();
        if let Some(calls) = all.get_mut(&self.place) {
            calls.count -= 1;
            if calls.count == 0 {
                all.remove(&self.place);
            }
        }
    }
}
